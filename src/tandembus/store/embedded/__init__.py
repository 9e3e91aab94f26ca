"""The embedded messaging store, on LMDB."""

from tandembus.store.embedded.environment import EmbeddedSettings
from tandembus.store.embedded.lane_reader import DamagedRecord
from tandembus.store.embedded.lmdb_store import LmdbStore

__all__ = ["DamagedRecord", "EmbeddedSettings", "LmdbStore"]
