"""What administration asks of the stores and of those who follow the catalog, wherever they are."""

from __future__ import annotations

from typing import Protocol

from tandembus.errors import BusError
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.entries import Entry


class StorePort(Protocol):
    """One messaging store, through the broker that owns it."""

    @property
    def index(self) -> int: ...

    @property
    def newest_key(self) -> int:
        """The highest key of a fragment there; 0 where that is not known yet."""

    def failure(self) -> BusError | None:
        """Why nothing can be asked of it now: its broker or the store itself is out of reach. None while it can."""

    async def make(self, entry: Entry) -> None:
        """Durably make the heads of the entity's fragments that are in this store; what is there already stays as it
        is. Raises StoreUnavailable."""

    async def check(self, entry: Entry) -> None:
        """Raises StoreUnavailable unless the store takes commits now and the entity's fragments there are served."""


class CatalogFollower(Protocol):
    """A process (or a part of this one) that has a copy of the catalog."""

    @property
    def name(self) -> str:
        """For the log."""

    async def take(self, change: CatalogChange) -> None:
        """Returns when the change is in effect there, and durable where it keeps a copy. Called in the order of
        versions, the next one only after the last has returned."""

    def cut_off(self, reason: BusError) -> None:
        """It did not confirm in time: it must not serve any more until it has taken a whole catalog."""
