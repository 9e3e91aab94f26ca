"""What several processes have counted, told as one."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import MalformedData
from tandembus.metering.meter import EntityTotal, MeterTotals
from tandembus.metering.slot import Count
from tandembus.node.metering import meter_from_wire, meter_to_wire, summed
from tests.covers import covers


def totals(entity: str, calls: int, started_at: float, gap: tuple[int, int] | None = None) -> MeterTotals:
    count = Count(calls, 2 * calls, 3 * calls, 4 * calls)
    return MeterTotals([EntityTotal(entity, "send", "normal", count)], {("send", "normal"): count}, started_at, gap)


def figures(count: Count) -> tuple[int, int, int, int]:
    return count.calls, count.messages, count.operations, count.size_bytes


@covers("P28")
def test_totals_arrive_as_they_were_sent() -> None:
    sent = totals("orders", 5, 12.5, (3, 4))
    value, _ = decode(encode(meter_to_wire(sent)))
    arrived = meter_from_wire(value)
    (row,) = arrived.since_start
    assert (row.entity, row.operation, row.reason) == ("orders", "send", "normal")
    assert figures(row.count) == figures(arrived.cumulative["send", "normal"]) == (5, 10, 15, 20)
    assert (arrived.started_at, arrived.gap) == (12.5, (3, 4))


@covers("P28")
def test_sums_are_as_if_one_meter_had_counted_everything() -> None:
    whole = summed([totals("a", 1, 9.0), totals("a", 2, 7.0, (1, 2)), totals("b", 4, 8.0, (5, 6))])
    assert {row.entity: row.count.calls for row in whole.since_start} == {"a": 3, "b": 4}
    assert figures(whole.cumulative["send", "normal"]) == (7, 14, 21, 28)
    assert (whole.started_at, whole.gap) == (7.0, (1, 6))


def test_summing_changes_none_of_the_parts() -> None:
    part = totals("a", 1, 1.0)
    summed([part, totals("a", 2, 1.0)])
    assert part.since_start[0].count.calls == 1


@pytest.mark.parametrize("value", [None, {}, {"since_start": [["a"]], "cumulative": []}, []])
def test_what_are_no_totals_is_refused(value: object) -> None:
    with pytest.raises(MalformedData):
        meter_from_wire(value)
