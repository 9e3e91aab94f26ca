"""What pairing tells about itself (N16): for logs, metrics and timelines. `at` is wall time, seconds since 1970 UTC."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

_log = logging.getLogger("tandembus.pairing")


@dataclass(frozen=True, slots=True)
class PairingEvent:
    at: float


@dataclass(frozen=True, slots=True)
class FailoverEngaged(PairingEvent):
    """From now on, sends to this entity go to the backlog."""

    path: str
    failing_for_s: float
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class PingSent(PairingEvent):
    path: str


@dataclass(frozen=True, slots=True)
class PingFailed(PairingEvent):
    path: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class EntityHealthy(PairingEvent):
    """From now on, sends to this entity go to the primary again."""

    path: str
    failed_over_for_s: float
    because: Literal["ping", "marked"]


@dataclass(frozen=True, slots=True)
class BacklogQueueDropped(PairingEvent):
    """A backlog queue refused a message, and nobody sends to it for now."""

    queue: str
    error: BaseException
    queues_left: int


@dataclass(frozen=True, slots=True)
class ClientFaulted(PairingEvent):
    """A client was closed because its partner was gone (N14)."""

    side: Literal["primary", "secondary"]
    first: Literal["primary", "secondary"]


@dataclass(frozen=True, slots=True)
class SyphonMoved(PairingEvent):
    """Messages are home: accepted by the primary, and completed in the backlog."""

    queue: str
    path: str
    message_count: int


Listener: TypeAlias = Callable[[PairingEvent], object]
ListenerType = TypeVar("ListenerType", bound=Listener)


class Listeners:
    """Whoever wants to hear of it. A listener that fails is logged and harms nobody: sends must go on."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def tell(self, event: PairingEvent) -> None:
        _log.info("%s", event)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s", event)
