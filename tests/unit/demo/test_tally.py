"""The demonstration's bookkeeping: it must notice what it claims not to have happened."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from rich.console import Console

from demo.acts import Span, return_of, worst
from demo.hold_ups import HoldUps
from demo.report import Account, Measured, Operations, Reaction, print_account
from demo.tally import Tally
from demo.traffic import Observed
from demo.view import Picture, Speedometer
from tandembus.client.meter import Counted
from tandembus.clock import ManualClock
from tandembus.metering.price_files import load_prices
from tandembus.metering.slot import NORMAL, RENEW_LOCK, SEND, SYPHON


def tally(accepted: Iterable[int], received: Iterable[int]) -> Tally:
    """One sender; everything received is completed."""
    kept = Tally()
    kept.started(0, 0.0)
    for number in accepted:
        kept.accepted((0, number), 1.0, False)
    for number in received:
        kept.received((0, number))
        kept.completed((0, number))
    return kept


@pytest.mark.parametrize(
    ("accepted", "received", "lost", "duplicates", "order_changes"),
    [
        ([0, 1, 2], [0, 1, 2], 0, 0, 0),
        ([0, 1, 2], [0, 2], 1, 0, 0),
        ([0, 1, 2], [0, 1, 1, 2], 0, 1, 0),
        ([0, 1, 2], [1, 2, 0], 0, 0, 1),
        ([0, 1, 2, 3], [3, 0, 1, 2], 0, 0, 3),
        ([], [], 0, 0, 0),
    ],
)
def test_what_is_lost_doubled_or_late_shows(
    accepted: list[int], received: list[int], lost: int, duplicates: int, order_changes: int
) -> None:
    kept = tally(accepted, received)
    balance = kept.balance()
    assert (balance.lost, balance.duplicates, balance.order_changes) == (lost, duplicates, order_changes)
    assert kept.is_complete == (lost == 0)


def test_a_message_that_comes_before_its_sender_hears_of_it_is_delivered() -> None:
    kept = Tally()
    kept.started(0, 0.0)
    kept.received((0, 0))
    assert kept.balance().delivered == 0
    kept.accepted((0, 0), 1.0, False)
    assert (kept.balance().delivered, kept.balance().lost) == (1, 0)


def test_what_comes_again_before_it_was_completed_is_no_duplicate() -> None:
    kept = tally([0], [])
    kept.received((0, 0))
    kept.received((0, 0))
    kept.completed((0, 0))
    assert (kept.balance().redelivered, kept.balance().duplicates) == (1, 0)
    kept.received((0, 0))
    assert kept.balance().duplicates == 1


def test_the_longest_wait_of_one_sender_is_the_time_without_service() -> None:
    kept = Tally()
    kept.started(0, 0.0)
    kept.started(1, 0.0)
    for at in (1.0, 2.0, 9.5):
        kept.accepted((0, int(at)), at, False)
    for at in (3.0, 6.0, 9.0):
        kept.accepted((1, int(at)), at, True)
    balance = kept.balance()
    assert (balance.without_service_s, balance.diverted) == (7.5, 3)


def account(
    kept: Tally, failover_s: float | None = 5.0, return_s: float | None = 0.1, left: int = 0, held_up_s: float = 0.0
) -> Account:
    failover = None if failover_s is None else Measured(failover_s, held_up_s)
    returned = None if return_s is None else Measured(return_s, held_up_s)
    reaction = Reaction(5.0, 0.1, failover, returned, return_s, 1.0)
    return Account(kept.balance(), reaction, Operations(0, {}), left, 40.0)


def good() -> Tally:
    kept = tally([0], [0])
    kept.diverted = 1
    return kept


def test_an_account_in_which_all_went_well_has_no_complaints() -> None:
    assert account(good()).complaints() == []


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (account(tally([0, 1], [0])), "1 accepted messages were not delivered"),
        (account(tally([0], [0, 0])), "1 messages were delivered twice"),
        (account(tally([], [])), "nothing was sent"),
        (account(good(), failover_s=None), "failover was never engaged"),
        (account(tally([0], [0])), "nothing went to the backlog"),
        (
            account(good(), failover_s=5.11),
            "failover was engaged 5.110 s after the first refused send, not 5 s +- 0.1 s",
        ),
        (
            account(good(), failover_s=4.89),
            "failover was engaged 4.890 s after the first refused send, not 5 s +- 0.1 s",
        ),
        (
            account(good(), return_s=0.101),
            "the senders were back 0.101 s after the ping was accepted, not within 0.1 s",
        ),
        (account(good(), return_s=None), "the senders never returned to the primary"),
        (account(good(), left=7), "7 messages are left in the backlog"),
    ],
)
def test_whatever_was_promised_and_did_not_happen_is_a_complaint(wrong: Account, complaint: str) -> None:
    assert complaint in wrong.complaints()


def test_a_failover_a_little_early_or_late_is_as_promised() -> None:
    for failover_s in (4.91, 5.0, 5.09):
        assert account(good(), failover_s=failover_s).complaints() == []


def test_senders_measure_from_the_first_refusal_without_a_success_after_it() -> None:
    seen = Observed()
    seen.refused(1.0)
    seen.accepted(1.1, 1.2, is_diverted=False)
    seen.refused(2.0)
    seen.refused(2.1)
    assert seen.refused_since == 2.0


def test_what_the_machine_kept_waiting_is_not_held_against_the_pair_but_no_more_than_that() -> None:
    assert account(good(), failover_s=5.35, return_s=0.3, held_up_s=0.3).complaints() == []
    assert len(account(good(), failover_s=5.45, return_s=0.45, held_up_s=0.3).complaints()) == 2
    assert len(account(good(), failover_s=4.8, held_up_s=0.3).complaints()) == 1, "early is not late"


@pytest.mark.parametrize(
    ("held_up_s", "told"), [(0.0, "were on time."), (0.3, "late only by what the busy machine kept")]
)
def test_an_excuse_is_told(held_up_s: float, told: str) -> None:
    console = Console(file=io.StringIO(), record=True, width=160)
    print_account(account(good(), failover_s=5.05 + held_up_s, held_up_s=held_up_s), load_prices(), console)
    text = console.export_text()
    assert told in text
    assert ("+- 0.1 s, and 0.30 s for which the machine kept this program waiting" in text) == (held_up_s > 0)


def test_every_operation_of_the_outage_is_told_in_words() -> None:
    kinds = [(RENEW_LOCK, SYPHON, 3), ("rule_added", SYPHON, 2), (SEND, NORMAL, 5)]
    counted = [Counted("", operation, reason, 1, 0, count, 0) for operation, reason, count in kinds]
    operations = Operations.of(counted)
    assert dict(operations.of_outage) == {"locks renewed there": 3, "rule added for syphon": 2}
    assert operations.total == 10


def test_the_program_notices_when_it_was_kept_waiting() -> None:
    hold_ups = HoldUps(ManualClock())
    hold_ups.rang(1.00, 1.001)
    hold_ups.rang(2.00, 2.30)
    hold_ups.rang(3.00, 3.10)
    assert hold_ups.held_up_s(0.0, 1.9) == 0.0
    assert hold_ups.held_up_s(2.2, 2.4) == pytest.approx(0.3)
    assert hold_ups.held_up_s(2.2, 9.0) == pytest.approx(0.3)
    assert hold_ups.held_up_s(2.5, 9.0) == pytest.approx(0.1)


def test_the_return_is_measured_to_the_first_send_there_unless_a_later_one_went_to_the_backlog() -> None:
    seen = Observed()
    seen.accepted(9.9, 10.2, is_diverted=True)
    seen.accepted(10.03, 10.5, is_diverted=False)
    assert return_of(seen, 10.0) == Span(10.0, 10.03)
    seen.accepted(10.4, 10.6, is_diverted=True)
    assert return_of(seen, 10.0) == Span(10.0, 10.4)
    assert return_of(Observed(), 10.0) is None
    assert return_of(seen, None) is None


def test_the_queue_that_did_worst_is_told() -> None:
    assert worst([Measured(5.02), Measured(4.9)], 5.0) == Measured(4.9)
    assert worst([Measured(0.02), None], 0.0) is None


def test_operations_of_the_outage_are_told_by_what_they_were() -> None:
    rows = [("send", "normal", 10), ("send", "failover", 3), ("receive", "syphon", 3), ("defer", "syphon", 1)]
    counted = [Counted("", operation, reason, 1, 1, count, 0) for operation, reason, count in rows]
    found = Operations.of(counted)
    assert found.total == 17
    assert found.of_outage == {"sends to the backlog": 3, "receives from it": 3, "put aside there": 1}


def picture(elapsed_s: float, accepted: int, diverted: int) -> Picture:
    return Picture(elapsed_s, "", True, {}, accepted, diverted, accepted, 0, 0)


def test_rates_are_those_of_the_last_second() -> None:
    speed = Speedometer()
    for step in range(8):
        rates = speed.rates(picture(step * 0.5, step * 50, 0))
    assert rates.to_primary == pytest.approx(100.0)
    rates = speed.rates(picture(4.0, 400, 50))
    assert rates.to_primary == pytest.approx(50.0)
    assert rates.to_backlog == pytest.approx(50.0)
