"""What the administration needs of a namespace, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tandembus.descriptions import QueueDescription
from tandembus.front_end.http.queue_xml import Counts
from tandembus.limits import Limits
from tandembus.namespace.paths import SubQueue


class AdministeredQueue(Protocol):
    """A queue as the catalog has it."""

    @property
    def description(self) -> QueueDescription: ...
    @property
    def created_at(self) -> float: ...
    @property
    def updated_at(self) -> float: ...


class QueueCatalog(Protocol):
    """Which queues there are; names are found in whatever letters they are asked for."""

    def find_queue(self, name: str) -> AdministeredQueue | None: ...

    def queues(self, skip: int, top: int) -> Sequence[AdministeredQueue]:
        """A slice of all queues by name."""


class AdministeredNamespace(Protocol):
    """The namespace behind the administration. Whatever it refuses, it refuses with a BusError."""

    @property
    def name(self) -> str: ...
    @property
    def created_at(self) -> float: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def catalog(self) -> QueueCatalog: ...

    async def create_queue(self, description: QueueDescription) -> AdministeredQueue: ...

    async def update_queue(self, description: QueueDescription) -> AdministeredQueue: ...

    async def delete_queue(self, name: str) -> None: ...

    async def counts(self, name: str) -> Counts: ...

    def accessed_at(self, name: str) -> float:
        """When the queue was last used."""

    async def purge(self, name: str, sub_queue: SubQueue) -> int:
        """Remove what is there; how many messages that was."""
