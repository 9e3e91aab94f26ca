"""What a syphon in the application's process tells and notices."""

from __future__ import annotations

from tandembus.client.errors import ConnectionLost, TokenRefused
from tandembus.clock import ManualClock
from tandembus.errors import EntityNotFound, Unauthorized
from tandembus.pairing import PairingEvent, SyphonMoved
from tandembus.pairing.closing import PrimaryKey
from tandembus.pairing.events import Listeners
from tandembus.pairing.syphon_host import HostedFigures
from tests.covers import covers

REFUSED = TokenRefused("no")


class Heard:
    def __init__(self) -> None:
        self.events: list[PairingEvent] = []
        self.refusals: list[tuple[str, BaseException]] = []
        listeners = Listeners()
        listeners.add(self.events.append)
        self.clock = ManualClock()
        self.figures = HostedFigures(
            self.clock,
            listeners,
            2,
            lambda error: self.refusals.append(("secondary", error)),
            PrimaryKey(self.clock, lambda error: self.refusals.append(("primary", error))),
            {"orders", "events"}.__contains__,
        )

    def retried(self, queue: str, path: str, error: BaseException) -> None:
        self.clock.advance(30.0)
        self.figures.retried(queue, path, error)

    def troubled(self, queue: str, error: BaseException) -> None:
        self.clock.advance(30.0)
        self.figures.troubled(queue, error)


@covers("N16")
def test_every_move_is_an_event() -> None:
    heard = Heard()
    heard.figures.moved("backlog/0", "orders", 3, 300)
    (event,) = heard.events
    assert isinstance(event, SyphonMoved)
    assert (event.queue, event.path, event.message_count) == ("backlog/0", "orders", 3)


@covers("N14")
def test_a_key_that_is_refused_for_every_queue_again_and_again_is_refused_for_good() -> None:
    heard = Heard()
    for _ in range(2):
        heard.troubled("backlog/0", REFUSED)
        heard.troubled("backlog/1", REFUSED)
    heard.troubled("backlog/0", REFUSED)
    assert heard.refusals == []
    heard.troubled("backlog/1", REFUSED)
    assert heard.refusals == [("secondary", REFUSED)]


@covers("N14")
def test_a_key_that_is_refused_often_within_a_minute_is_not_refused_for_good() -> None:
    heard = Heard()
    for _ in range(60):
        heard.figures.troubled("backlog/0", REFUSED)
        heard.figures.troubled("backlog/1", REFUSED)
        heard.figures.retried("backlog/0", "orders", REFUSED)
        heard.clock.advance(0.99)
    assert heard.refusals == []
    heard.clock.advance(0.6)
    heard.figures.retried("backlog/0", "orders", REFUSED)
    heard.figures.troubled("backlog/0", REFUSED)
    assert heard.refusals == [("primary", REFUSED)]
    heard.figures.troubled("backlog/1", REFUSED)
    assert heard.refusals == [("primary", REFUSED), ("secondary", REFUSED)]


@covers("N14")
def test_short_refusals_that_are_hours_apart_are_not_for_good() -> None:
    heard = Heard()
    for _ in range(4):
        for _ in range(3):
            heard.clock.advance(2.0)
            for queue in ("backlog/0", "backlog/1"):
                heard.figures.troubled(queue, REFUSED)
            heard.figures.retried("backlog/0", "orders", REFUSED)
        heard.clock.advance(3600.0)
    assert heard.refusals == []


@covers("N14")
def test_queues_that_refuse_a_key_one_after_the_other_hours_apart_do_not_refuse_it_together() -> None:
    heard = Heard()
    for queue in ("backlog/0", "backlog/1"):
        for _ in range(4):
            heard.troubled(queue, REFUSED)
        heard.clock.advance(3600.0)
    assert heard.refusals == []


@covers("N14")
def test_other_troubles_and_messages_that_come_show_that_the_key_is_good() -> None:
    heard = Heard()
    for _ in range(5):
        heard.troubled("backlog/0", REFUSED)
        heard.troubled("backlog/1", REFUSED)
        heard.troubled("backlog/1", ConnectionLost("away"))
    assert heard.refusals == []
    heard.figures.moved("backlog/0", "orders", 1, 1)
    for _ in range(3):
        heard.troubled("backlog/1", REFUSED)
    assert heard.refusals == []


@covers("N14")
def test_backlog_queues_that_were_deleted_say_nothing_about_the_key() -> None:
    heard = Heard()
    gone = EntityNotFound("no")
    for _ in range(5):
        heard.troubled("backlog/0", gone)
        heard.troubled("backlog/1", gone)
    assert heard.refusals == []


@covers("N14")
def test_the_primarys_key_is_refused_for_good_by_an_entity_that_the_application_sends_to() -> None:
    heard = Heard()
    heard.figures.stuck("backlog/0", "orders", REFUSED)
    heard.retried("backlog/0", "orders", REFUSED)
    assert heard.refusals == []
    heard.retried("backlog/1", "orders", REFUSED)
    assert heard.refusals == [("primary", REFUSED)]


@covers("N14")
def test_a_message_taken_anywhere_shows_that_the_primarys_key_is_good() -> None:
    heard = Heard()
    for _ in range(5):
        heard.retried("backlog/0", "orders", REFUSED)
        heard.retried("backlog/0", "orders", REFUSED)
        heard.figures.moved("backlog/1", "events", 1, 1)
    for _ in range(5):
        heard.retried("backlog/0", "orders", REFUSED)
        heard.retried("backlog/0", "orders", ConnectionLost("away"))
    assert heard.refusals == []


@covers("N14")
def test_no_message_can_have_the_applications_client_closed() -> None:
    heard = Heard()
    for _ in range(10):
        heard.retried("backlog/0", "the-safe", REFUSED)
        heard.retried("backlog/0", "orders", Unauthorized("may not send"))
    assert heard.refusals == []
