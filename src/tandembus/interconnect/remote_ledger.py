"""The ledger of a fragment behind a channel, a call each, and what answers those calls where the fragment is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

from tandembus.broker.reservations import BrowsedBlock, Prospect, Range
from tandembus.errors import MalformedData
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.interconnect.wire_values import Values


@final
class RemoteLedger:
    """Implements `FragmentLedger`."""

    def __init__(self, channel: Channel, fragment_key: int, timeout_s: float, long_timeout_s: float) -> None:
        self._channel: Final = channel
        self._fragment_key: Final = fragment_key
        self._timeout_s: Final = timeout_s
        self._long_timeout_s: Final = long_timeout_s

    async def _ask(self, name: str, *values: object) -> Values:
        called = await self._channel.call(f"ledger_{name}", [self._fragment_key, *values], self._timeout_s)
        return Values([called])

    async def _change(self, name: str, *values: object) -> Values:
        called = await self._channel.call(f"ledger_{name}", [self._fragment_key, *values], self._long_timeout_s, True)
        return Values([called])

    async def open_owner(self, lane: int, owner: str, wanted: int | None, max_owners: int) -> int:
        return (await self._change("open_owner", lane, owner, wanted, max_owners)).integer()

    async def prospect(
        self, lane: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
    ) -> Prospect:
        found = Values((await self._ask("prospect", lane, owner, epoch, request, max_messages, up_to)).items())
        count, size_bytes, is_answered = found.integer(), found.integer(), found.boolean()
        return Prospect(_ranges_in(found) if is_answered else None, count, size_bytes)

    async def reserve(
        self,
        lane: int,
        owner: str,
        epoch: int,
        request: int,
        max_messages: int,
        max_bytes: int,
        up_to: int | None,
    ) -> Sequence[Range]:
        return _ranges_in(await self._change("reserve", lane, owner, epoch, request, max_messages, max_bytes, up_to))

    async def reserved(self, lane: int, owner: str, epoch: int | None) -> Sequence[Range]:
        return _ranges_in(await self._ask("reserved", lane, owner, epoch))

    async def browse(self, lane: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock:
        found = Values((await self._ask("browse", lane, first, last, max_messages, max_bytes)).items())
        return BrowsedBlock(found.data(), found.integer(), found.integer(), found.integer_or_none())

    async def complete(self, lane: int, owner: str, epoch: int, ranges: Sequence[Range]) -> int:
        return (await self._change("complete", lane, owner, epoch, _flat(ranges))).integer()

    async def release(self, lane: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int:
        flat = [] if ranges is None else _flat(ranges)
        return (await self._change("release", lane, owner, epoch, ranges is None, flat)).integer()

    async def owners(self, lane: int) -> Sequence[tuple[str, int, int]]:
        found = (await self._ask("owners", lane)).lists()
        return [(_text(one), one.integer(), one.integer()) for one in found]

    async def end(self, lane: int) -> int:
        return (await self._ask("end", lane)).integer()


LedgerCall = Callable[[LocalLedger, Values], Awaitable[object]]


async def _open_owner(ledger: LocalLedger, values: Values) -> object:
    lane, owner = values.lane(), _text(values)
    return await ledger.open_owner(lane, owner, values.integer_or_none(), values.integer())


async def _prospect(ledger: LocalLedger, values: Values) -> object:
    lane, owner, epoch = values.lane(), _text(values), values.integer()
    found = await ledger.prospect(lane, owner, epoch, values.integer(), values.integer(), values.integer_or_none())
    return [found.count, found.size_bytes, found.answer is not None, _flat(found.answer or [])]


async def _reserve(ledger: LocalLedger, values: Values) -> object:
    lane, owner, epoch, request = values.lane(), _text(values), values.integer(), values.integer()
    max_messages, max_bytes, up_to = values.integer(), values.integer(), values.integer_or_none()
    return _flat(await ledger.reserve(lane, owner, epoch, request, max_messages, max_bytes, up_to))


async def _reserved(ledger: LocalLedger, values: Values) -> object:
    return _flat(await ledger.reserved(values.lane(), _text(values), values.integer_or_none()))


async def _browse(ledger: LocalLedger, values: Values) -> object:
    lane, first, last = values.lane(), values.integer(), values.integer()
    found = await ledger.browse(lane, first, last, values.integer(), values.integer())
    return [found.data, found.count, found.units, found.next_number]


async def _complete(ledger: LocalLedger, values: Values) -> object:
    return await ledger.complete(values.lane(), _text(values), values.integer(), _ranges_in(values))


async def _release(ledger: LocalLedger, values: Values) -> object:
    lane, owner, epoch, is_all = values.lane(), _text(values), values.integer_or_none(), values.boolean()
    ranges = _ranges_in(values)
    return await ledger.release(lane, owner, epoch, None if is_all else ranges)


async def _owners(ledger: LocalLedger, values: Values) -> object:
    return [list(one) for one in await ledger.owners(values.lane())]


async def _end(ledger: LocalLedger, values: Values) -> object:
    return await ledger.end(values.lane())


LEDGER_CALLS: Final[dict[str, LedgerCall]] = {
    "ledger_open_owner": _open_owner,
    "ledger_prospect": _prospect,
    "ledger_reserve": _reserve,
    "ledger_reserved": _reserved,
    "ledger_browse": _browse,
    "ledger_complete": _complete,
    "ledger_release": _release,
    "ledger_owners": _owners,
    "ledger_end": _end,
}


def _text(values: Values) -> str:
    text = values.text_or_none()
    if text is None:
        raise MalformedData("no text where one must be")
    return text


def _flat(ranges: Sequence[Range]) -> list[object]:
    return [number for one in ranges for number in one]


def _ranges_in(values: Values) -> list[Range]:
    numbers = values.integers()
    if len(numbers) % 2:
        raise MalformedData("a range without an end")
    return list(zip(numbers[::2], numbers[1::2], strict=True))
