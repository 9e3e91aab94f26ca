"""The official emulator's Config.json: read, checked as a whole, and brought about in a namespace; or written."""

from tandembus.node.emulator.document import EmulatorConfig, read_emulator_config
from tandembus.node.emulator.provisioning import Provisioned, provision
from tandembus.node.emulator.writing import write_emulator_config

__all__ = ["EmulatorConfig", "Provisioned", "provision", "read_emulator_config", "write_emulator_config"]
