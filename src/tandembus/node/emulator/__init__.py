"""The official emulator's Config.json: read, checked as a whole, and brought about in a namespace."""

from tandembus.node.emulator.document import EmulatorConfig, read_emulator_config
from tandembus.node.emulator.provisioning import Provisioned, provision

__all__ = ["EmulatorConfig", "Provisioned", "provision", "read_emulator_config"]
