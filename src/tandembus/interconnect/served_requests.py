"""Requests of front ends, answered by the broker that has the fragment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakKeyDictionary

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.sessions import SESSION_LOST
from tandembus.errors import FragmentUnavailable, SessionLockLost, StoreUnavailable
from tandembus.interconnect.frames import OTHER_LIFE
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.peer import CallHandler, Peer
from tandembus.interconnect.remote_ledger import LEDGER_CALLS, LedgerCall
from tandembus.interconnect.requests import Listing
from tandembus.interconnect.served_channel import ServedChannel
from tandembus.interconnect.traffic import SessionHold
from tandembus.interconnect.wire_values import (
    Values,
    browsed_value,
    counts_value,
    lock_value,
    taken_value,
)

MAX_ANSWER_BYTES: Final = 32 << 20
"""Of messages in one answer, whatever is asked for; at least one message."""
MAX_LISTINGS: Final = 64
"""Listings of sessions of one front end that are remembered between two pages."""

Request = Callable[["Asked", Values], Awaitable[object]]


class _Served:
    """Where the requests of one peer go."""

    def __init__(
        self, broker: MessageBroker, find: Callable[[int], Awaitable[Fragment]], channel: ServedChannel
    ) -> None:
        self.broker = broker
        self.find = find
        self.channel = channel
        self.listings: OrderedDict[int, Listing] = OrderedDict()

    def listing(self, number: int) -> Listing:
        listing = self.listings.pop(number, None) or Listing()
        self.listings[number] = listing
        if len(self.listings) > MAX_LISTINGS:
            self.listings.popitem(last=False)
        return listing

    def hold(self, number: int | None) -> SessionHold | None:
        if number is None:
            return None
        hold = self.channel.receivers.sessions.hold_of(number)
        if hold is None:
            raise SessionLockLost(SESSION_LOST)
        return hold


class Asked:
    """One request: of which fragment, and of whom."""

    def __init__(self, served: _Served, requests: LocalRequests) -> None:
        self.served = served
        self.requests = requests

    @property
    def ledger(self) -> LocalLedger:
        return self.requests.ledgers[0]

    def hold(self, number: int | None) -> SessionHold | None:
        return self.served.hold(number)

    def held(self, number: int) -> SessionHold:
        hold = self.served.hold(number)
        assert hold is not None
        return hold


class ServedRequests:
    def __init__(self) -> None:
        self._served: WeakKeyDictionary[Peer, _Served] = WeakKeyDictionary()

    def joined(
        self,
        peer: Peer,
        broker: MessageBroker,
        find: Callable[[int], Awaitable[Fragment]],
        channel: ServedChannel,
    ) -> None:
        self._served[peer] = _Served(broker, find, channel)

    def calls(self) -> dict[str, CallHandler]:
        requests = {name: self._handler(request) for name, request in REQUESTS.items()}
        return requests | {name: self._handler(_of_ledger(call)) for name, call in LEDGER_CALLS.items()}

    def _handler(self, request: Request) -> CallHandler:
        async def answer(peer: Peer, value: object) -> object:
            served = self._served[peer]
            if served.broker.failure is not None:
                raise StoreUnavailable(str(served.broker.failure))
            values = Values(value)
            epoch = served.channel.epoch
            fragment = await served.find(values.integer())
            if served.channel.epoch != epoch:
                raise FragmentUnavailable(OTHER_LIFE)
            return await request(Asked(served, LocalRequests(served.broker, fragment)), values)

        return answer


def _of_ledger(call: LedgerCall) -> Request:
    async def answer(asked: Asked, values: Values) -> object:
        return await call(asked.ledger, values)

    return answer


async def _counts(asked: Asked, _values: Values) -> object:
    return counts_value(await asked.requests.counts())


async def _peek(asked: Asked, values: Values) -> object:
    lane, from_number, count, max_bytes = values.lane(), values.integer(), values.integer(), values.integer()
    session_id = values.text_or_none()
    size = min(max_bytes, MAX_ANSWER_BYTES)
    return browsed_value(await asked.requests.peek(lane, from_number, count, size, session_id))


async def _ends(asked: Asked, values: Values) -> object:
    return list(await asked.requests.ends(values.lane()))


async def _find_locks(asked: Asked, values: Values) -> object:
    tokens, lane = values.parts(), values.lane()
    locks = await asked.requests.find_locks(tokens, lane, asked.hold(values.integer_or_none()))
    return [lock_value(lock) for lock in locks]


async def _renew(asked: Asked, values: Values) -> object:
    return list(await asked.requests.renew(values.parts()))


async def _receive_deferred(asked: Asked, values: Values) -> object:
    lane, numbers, is_destructive = values.lane(), values.integers(), values.boolean()
    hold = asked.hold(values.integer_or_none())
    return taken_value(await asked.requests.receive_deferred(lane, numbers, is_destructive, hold))


async def _take_waiting(asked: Asked, values: Values) -> object:
    lane, from_number, to_number = values.lane(), values.integer(), values.integer()
    count, max_bytes = values.integer(), values.integer()
    size = min(max_bytes, MAX_ANSWER_BYTES)
    taken = await asked.requests.take_waiting(lane, from_number, to_number, count, size)
    return [taken_value(taken.messages), taken.next_number]


async def _find_sent(asked: Asked, values: Values) -> object:
    from_number, sections, others = values.integer(), values.parts(), values.integers()
    return list(await asked.requests.find_sent(from_number, sections, others))


async def _cancel_scheduled(asked: Asked, values: Values) -> object:
    await asked.requests.cancel_scheduled(values.integers())
    return None


async def _promise_numbers(asked: Asked, values: Values) -> object:
    session_ids = [None if one is None else Values(one).text_or_none() for one in values.items()]
    return list(await asked.requests.promise_numbers(0, session_ids))


async def _find_scheduled(asked: Asked, values: Values) -> object:
    found = await asked.requests.find_scheduled(values.integers())
    return [[int(one.number), int(one.size_bytes), int(one.due_ms)] for one in found]


async def _delete_batch(asked: Asked, values: Values) -> object:
    lane, count, before_ms = values.lane(), values.integer(), values.integer()
    return await asked.requests.delete_batch(lane, count, before_ms, values.text_or_none())


async def _delete_one(asked: Asked, values: Values) -> object:
    await asked.requests.delete_one(values.lane(), values.integer())
    return None


async def _session_state(asked: Asked, values: Values) -> object:
    return await asked.requests.session_state(asked.held(values.integer()))


async def _set_session_state(asked: Asked, values: Values) -> object:
    await asked.requests.set_session_state(asked.held(values.integer()), values.bytes_or_none())
    return None


async def _renew_session(asked: Asked, values: Values) -> object:
    return await asked.requests.renew_session(asked.held(values.integer()))


async def _list_sessions(asked: Asked, values: Values) -> object:
    after_ms, skip, top, number = values.integer_or_none(), values.integer(), values.integer(), values.integer()
    return list(await asked.requests.list_sessions(after_ms, skip, top, asked.served.listing(number)))


REQUESTS: Final[dict[str, Request]] = {
    "counts": _counts,
    "peek": _peek,
    "ends": _ends,
    "find_locks": _find_locks,
    "renew": _renew,
    "receive_deferred": _receive_deferred,
    "take_waiting": _take_waiting,
    "find_sent": _find_sent,
    "cancel_scheduled": _cancel_scheduled,
    "promise_numbers": _promise_numbers,
    "find_scheduled": _find_scheduled,
    "delete_batch": _delete_batch,
    "delete_one": _delete_one,
    "session_state": _session_state,
    "set_session_state": _set_session_state,
    "renew_session": _renew_session,
    "list_sessions": _list_sessions,
}
