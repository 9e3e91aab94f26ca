"""Messages of all shapes through everything that a pair has: sender, backlog, syphon. At home they are what they would
have been, had the plain SDK sent them there: byte for byte."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from tandembus.client import ReceivedMessage, connect
from tandembus.clock import SystemClock
from tandembus.pairing import EntityState
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import Closer, LoopThread
from tests.integration.syphons import wait_until
from tests.integration.wire_forms import lying_in, wire_form, without_id
from tests.unit.pairing.sdk_messages import BODIES, PROPERTIES, annotated, full_message

NEAR_THE_LIMIT = 262_144 - 300
"""Of a body: there is room for the aliases, and for little else."""
PROGRAM, IN_PROCESS = "program", "in-process"


@dataclass(frozen=True, slots=True)
class Shape:
    """Messages of one kind. Each object is sent twice, directly and into the backlog: nobody changes it."""

    messages: list[Any]
    needs_sessions: bool = False
    has_ids: bool = True
    kind: str = "one by one"
    """Or `list`, or `batch`, or `early batch`: one that is made before the primary is lost."""


def _properties() -> list[Any]:
    return [ServiceBusMessage("x", application_properties={name: value}) for name, value in PROPERTIES.items()]


def _times_to_live() -> list[Any]:
    lives = (timedelta(minutes=10), timedelta(days=49), timedelta(hours=1, milliseconds=1))
    return [ServiceBusMessage("x", time_to_live=one) for one in lives]


def _schedules() -> list[Any]:
    soon, now = datetime(2031, 5, 17, 12, 30, 15, 250_999), datetime.now(UTC)
    times = (soon, soon.replace(tzinfo=timezone(timedelta(hours=3))), now + timedelta(days=1), now - timedelta(days=1))
    return [ServiceBusMessage("x", scheduled_enqueue_time_utc=one) for one in times]


def _in_sessions() -> list[Any]:
    return [ServiceBusMessage("x", session_id=one) for one in ("a", "b", "grüße", "x" * 128, "a")]


def _of_other_kinds() -> list[Any]:
    named = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id="m", subject="s"))
    return [{"body": b"a mapping", "message_id": "m", "application_properties": {"n": 1}}, named]


def _bare() -> list[Any]:
    return [ServiceBusMessage(""), ServiceBusMessage(b""), ServiceBusMessage("grüße")]


def _full(**changes: Any) -> ServiceBusMessage:
    message = full_message()
    for name, value in changes.items():
        setattr(message, name, value)
    return message


SHAPES: dict[str, Callable[[], Shape]] = {
    "bare": lambda: Shape(_bare()),
    "bodies": lambda: Shape([annotated(one) for one in BODIES.values()], has_ids=False),
    "annotated-bodies": lambda: Shape([copy.deepcopy(one) for one in BODIES.values()], has_ids=False),
    "mappings-and-annotated-messages": lambda: Shape(_of_other_kinds()),
    "property-types": lambda: Shape(_properties()),
    "list": lambda: Shape([*_properties(), *_bare(), *_times_to_live()], kind="list"),
    "everything-that-the-sdk-has": lambda: Shape([_full()], needs_sessions=True),
    "sessions": lambda: Shape(_in_sessions(), needs_sessions=True),
    "sessions-where-none-are-needed": lambda: Shape(_in_sessions()),
    "times-to-live": lambda: Shape(_times_to_live()),
    "schedules": lambda: Shape(_schedules()),
    "partition-keys": lambda: Shape([ServiceBusMessage("x", partition_key="k")]),
    "near-the-size-limit": lambda: Shape([ServiceBusMessage(b"z" * NEAR_THE_LIMIT)]),
    "batch": lambda: Shape([_full(), *_properties(), *_times_to_live(), *_bare()], kind="batch"),
    "batch-made-before-the-outage": lambda: Shape([_full(), *_properties(), *_times_to_live()], kind="early batch"),
}


Compared = dict[str, tuple[list[ReceivedMessage], list[ReceivedMessage]]]
"""Of each shape what was sent directly, and what came home."""


class Chain:
    """Sends every shape twice: directly, and while the primary is away through the backlog. All share a queue, or
    another one with sessions, because opening a link takes the SDK a second."""

    def __init__(self, form: Form, port: str, primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> None:
        self._form, self._port = form, port
        self._primary, self._secondary = primary, secondary
        self._shapes = {name: make() for name, make in SHAPES.items()}
        self._direct, self._home = self._new_queues(), self._new_queues()
        self._senders: dict[bool, Any] = {}
        self._plain = form.client(primary.connection_string)
        self._pair = Pair(
            form,
            form.client(primary.connection_string),
            form.client(secondary.connection_string),
            form.admin(secondary.tls_connection_string, secondary.ca_path),
            backlog_queue_count=1,
            failover_interval=timedelta(0),
            enable_syphon=port == IN_PROCESS,
        )
        form.closing_first(self._pair.close)

    def _new_queues(self) -> dict[bool, str]:
        """By whether they need sessions."""
        return {
            needs_sessions: self._primary.create_queue(f"q-{uuid.uuid4().hex[:8]}", requires_session=needs_sessions)
            for needs_sessions in (False, True)
        }

    def send_directly(self) -> None:
        for key, path in self._direct.items():
            # Kept: a sender of the SDK that nobody holds goes without saying goodbye.
            self._senders[key] = self._form.call(self._plain.get_queue_sender, path)
        for shape in self._shapes.values():
            self._send(self._form.blocking(self._senders[shape.needs_sessions]), shape)

    def send_into_the_backlog(self) -> int:
        """How many there are then; none of them is on the primary."""
        senders = {key: self._pair.sender(path) for key, path in self._home.items()}
        early = [one for one in self._shapes.values() if one.kind == "early batch"]
        batches = [self._batch_of(senders[one.needs_sessions], one) for one in early]
        for path in self._home.values():
            self._primary.inject_fault(f"entity/{path}", "unavailable")
        for shape in self._shapes.values():
            self._send(senders[shape.needs_sessions], shape, batches.pop(0) if shape in early else None)
        for path in self._home.values():
            assert self._pair.state(path) is EntityState.FAILED_OVER
        return self._secondary.counts(self._pair.queues[0]).active

    def _send(self, sender: Any, shape: Shape, batch: Any = None) -> None:
        if shape.kind == "list":
            sender.send_messages(shape.messages)
        elif "batch" in shape.kind:
            sender.send_messages(batch or self._batch_of(sender, shape))
        else:
            for message in shape.messages:
                sender.send_messages(message)

    def _batch_of(self, sender: Any, shape: Shape) -> Any:
        batch = sender.create_message_batch()
        for message in shape.messages:
            batch.add_message(message)
        return batch

    def bring_home(self, count: int) -> None:
        self._primary.heal()
        if self._port == PROGRAM:
            assert asyncio.run(self._syphon_once()) == count
        wait_until(lambda: self._secondary.counts(self._pair.queues[0]).active == 0)
        assert self._secondary.counts(self._pair.queues[0]).dead_letter == 0

    async def _syphon_once(self) -> int:
        """As the program does it."""
        secondary = SharedConnection(partial(connect, self._secondary.connection_string))
        primary = SharedConnection(partial(connect, self._primary.connection_string))
        figures, settings = SyphonFigures(SystemClock()), SyphonSettings(quiet_s=0.1)
        backlog = [ClientBacklog(secondary, queue) for queue in self._pair.queues]
        assert await Syphon(backlog, ClientPrimary(primary), settings, figures, Runtime(SystemClock())).run(once=True)
        return figures.moved_count

    async def compare(self) -> Compared:
        async with await connect(self._primary.connection_string) as bus:
            direct, home = [
                {key: await lying_in(bus, path) for key, path in paths.items()} for paths in (self._direct, self._home)
            ]
        compared: Compared = {}
        for name, shape in self._shapes.items():
            count, key = len(shape.messages), shape.needs_sessions
            compared[name] = (direct[key][:count], home[key][:count])
            direct[key], home[key] = direct[key][count:], home[key][count:]
        assert direct == home == {False: [], True: []}
        return compared


@pytest.fixture(scope="module", params=[("async", PROGRAM), ("async", IN_PROCESS), ("sync", IN_PROCESS)], ids="-".join)
def compared(
    request: pytest.FixtureRequest,
    loop_thread: LoopThread,
    own_closer: Closer,
    primary: EmbeddedNamespace,
    secondary: EmbeddedNamespace,
) -> Iterator[Compared]:
    kind, port = request.param
    form = Form(kind, loop_thread)
    chain = Chain(form, port, primary, secondary)
    chain.send_directly()
    chain.bring_home(chain.send_into_the_backlog())
    yield asyncio.run(chain.compare())
    own_closer.close(form.close)


@covers("N8", "N9", "N11", "N17")
@pytest.mark.parametrize("name", SHAPES)
def test_a_message_comes_home_byte_for_byte_as_if_it_had_been_sent_there(compared: Compared, name: str) -> None:
    direct, home = compared[name]
    shape = SHAPES[name]()
    assert len(direct) == len(shape.messages)
    for one, other in zip(direct, home, strict=True):
        forms = [wire_form(each) for each in (one, other)]
        sent, came = forms if shape.has_ids else [without_id(form) for form in forms]
        assert sent == came
        assert (one.state, one.scheduled_at) == (other.state, other.scheduled_at)
