"""What a connection that stays open gains: messages of a partitioned entity stay ready for its next request.

All fragments are asked at once, and the first that answers is enough for one request. What the others answered with is
kept ready as long as somebody receives from the entity; between two requests of a connection, that is whoever stands
in line here without asking for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.front_end.http.connection import HttpConnection
from tandembus.message import Message
from tandembus.namespace.entity import Entity

MOST_ENTITIES: Final = 8
"""That one connection stands in line at; of more, those that it asked last."""

Place = tuple[Entity, int]


class StandIn:
    """Stands in line at one lane of an entity between two requests of a connection."""

    is_sender = False

    def __init__(self, standing: StandIns, connection: HttpConnection, entity: Entity, lane: int) -> None:
        self.lane: Final = lane
        self.entity: Final = entity
        self.connection: Final = connection
        self._standing: Final = standing
        self._consumer: Final = CallbackConsumer(False, _never)
        self._timer: asyncio.TimerHandle | None = None
        entity.attach(self, standing.clock.now())
        entity.traffic.attach(self._consumer, lane)
        connection.when_lost.add(self.leave)

    def request_begins(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def request_ends(self) -> None:
        """From now on there is a while for the next one."""
        self._timer = asyncio.get_running_loop().call_later(self._standing.keeps_s, self.leave)

    def leave(self) -> None:
        if self._standing.forget(self):
            self.request_begins()
            self.connection.when_lost.discard(self.leave)
            self.entity.traffic.detach(self._consumer, self.lane)
            self.entity.detach(self, self._standing.clock.now())

    def is_there(self) -> bool:
        return self._standing.has(self)

    def cut(self, error: BusError) -> None:
        self.leave()

    def entity_changed(self) -> None:
        return


class StandIns:
    """Of all connections."""

    def __init__(self, clock: Clock, keeps_s: float) -> None:
        """`keeps_s`: after that nothing of what was kept ready is left, and a connection counts as one that does not
        receive."""
        self.clock: Final = clock
        self.keeps_s: Final = keeps_s
        self._places: dict[HttpConnection, dict[Place, StandIn]] = {}

    @contextmanager
    def standing(self, connection: HttpConnection, entity: Entity, lane: int) -> Iterator[None]:
        """While a request receives, and for a while behind it."""
        one = self._find(connection, entity, lane)
        try:
            yield
        finally:
            if one.is_there():
                one.request_ends()

    def _find(self, connection: HttpConnection, entity: Entity, lane: int) -> StandIn:
        places = self._places.setdefault(connection, {})
        one = places.pop((entity, lane), None) or StandIn(self, connection, entity, lane)
        one.request_begins()
        places[entity, lane] = one
        if len(places) > MOST_ENTITIES:
            next(iter(places.values())).leave()
        return one

    def has(self, one: StandIn) -> bool:
        return self._places.get(one.connection, {}).get((one.entity, one.lane)) is one

    def forget(self, one: StandIn) -> bool:
        """False: it has left before."""
        if not self.has(one):
            return False
        places = self._places[one.connection]
        del places[one.entity, one.lane]
        if not places:
            del self._places[one.connection]
        return True

    def leave_all(self) -> None:
        for places in list(self._places.values()):
            for one in list(places.values()):
                one.leave()


def _never(_message: Message, _lock: MessageLock) -> None:
    raise AssertionError("who asks for nothing is given nothing")
