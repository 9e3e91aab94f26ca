"""Text from outside on a terminal: see `tandembus.printable`."""

from tandembus.printable import printable, printable_json

__all__ = ["printable", "printable_json"]
