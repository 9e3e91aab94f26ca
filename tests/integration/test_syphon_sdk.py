"""The syphon in the application's own process, on the SDK's clients: asyncio and blocking."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tandembus.amqp.encoding.sections import decode_message
from tandembus.client import OutgoingMessage, ReceivedMessage
from tandembus.client.messages import as_new
from tandembus.pairing import ClientFaulted, PairFaulted, PairingFailed, SyphonMoved, closing, sdk_connection
from tandembus.pairing.payloads import to_backlog
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import Closer, LoopThread
from tests.integration.syphons import bodies, everything_in, send_all, wait_until
from tests.unit.pairing.sdk_messages import BODIES, PROPERTIES, annotated, wire


@pytest.fixture(params=["async", "sync"])
def form(request: pytest.FixtureRequest, loop_thread: LoopThread, own_closer: Closer) -> Iterator[Form]:
    form = Form(request.param, loop_thread)
    yield form
    own_closer.close(form.close)


@pytest.fixture
def pair(form: Form, primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> Iterator[Pair]:
    made = Pair(
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
        enable_syphon=True,
        backlog_queue_count=1,
        syphon_retry_interval=timedelta(seconds=1),
    )
    yield made
    primary.heal()
    form.closing_first(made.close)


def new_queue(namespace: EmbeddedNamespace, name: str) -> str:
    return namespace.create_queue(f"{name}-{uuid.uuid4().hex[:8]}")


def numbered(count: int, path: str, first: int = 0) -> list[bytes]:
    return [to_backlog(OutgoingMessage(str(n), message_id=str(n)).encode(), path) for n in range(first, first + count)]


@covers("N8", "N11")
def test_messages_of_all_shapes_come_home_byte_for_byte(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    direct, home = new_queue(primary, "direct"), new_queue(primary, "home")
    shapes = [wire(annotated(BODIES[kind])) for kind in BODIES]
    for name, value in PROPERTIES.items():
        message = annotated(BODIES["text value"])
        message.application_properties = {name: value}
        shapes.append(wire(message))
    send_all(primary, direct, shapes)
    send_all(secondary, pair.queues[0], [to_backlog(each, home) for each in shapes])
    wait_until(lambda: primary.counts(home).active == len(shapes))
    for one, other in zip(everything_in(primary, direct), everything_in(primary, home), strict=True):
        assert parts(one) == parts(other)
    moved = pair.events.wait_for(SyphonMoved)
    assert (moved.queue, moved.path) == (pair.queues[0], home)


def parts(message: ReceivedMessage) -> tuple[object, ...]:
    """All sections with their types; ids that the service gave differ."""
    found = decode_message(as_new(message.payload), True)
    rest = None if found.properties is None else found.properties[1:]
    return found.message_annotations, rest, found.application_properties, found.bodies, found.footer


@covers("N12")
def test_a_dead_destination_holds_up_nobody_and_keeps_its_order(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    dead, live = new_queue(primary, "dead"), new_queue(primary, "live")
    fault = primary.inject_fault(f"entity/{dead}", "unavailable")
    send_all(secondary, pair.queues[0], numbered(120, dead) + numbered(10, live))
    wait_until(lambda: primary.counts(live).active == 10)
    wait_until(lambda: secondary.counts(pair.queues[0]).active == 120)
    primary.heal(fault)
    wait_until(lambda: secondary.counts(pair.queues[0]).active == 0)
    assert bodies(everything_in(primary, dead)) == list(range(120))


@covers("N12")
def test_what_nobody_takes_becomes_a_dead_letter(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    home = primary.create_queue(f"sessions-{uuid.uuid4().hex[:8]}", requires_session=True)
    without_path = OutgoingMessage("no path").encode()
    send_all(secondary, pair.queues[0], [without_path, *numbered(2, home), *numbered(3, "nobody")])
    wait_until(lambda: secondary.counts(pair.queues[0]).dead_letter == 6)
    assert secondary.counts(pair.queues[0]).active == 0


@covers("N1", "N17")
def test_a_version_of_the_sdk_that_a_syphon_cannot_work_with_is_an_error_of_pairing(
    form: Form, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_connection, "NEEDED", (*sdk_connection.NEEDED, "_is_gone_in_this_version"))
    with pytest.raises(PairingFailed, match="run `tandembus syphon` in place of enable_syphon"):
        Pair(
            form,
            form.client(primary.connection_string),
            form.client(secondary.connection_string),
            form.admin(secondary.tls_connection_string, secondary.ca_path),
            enable_syphon=True,
            backlog_queue_count=1,
        )


@covers("N14")
def test_a_key_that_the_primary_refuses_for_good_ends_the_pair_and_nothing_is_lost(
    loop_thread: LoopThread,
    own_closer: Closer,
    primary: EmbeddedNamespace,
    secondary: EmbeddedNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "REFUSED_FOR_S", 2.0)
    form = Form("async", loop_thread)
    made = Pair(
        form,
        form.client(primary.connection_string.replace("SharedAccessKey=", "SharedAccessKey=revoked")),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
        enable_syphon=True,
        backlog_queue_count=1,
    )
    form.closing_first(made.close)
    home = new_queue(primary, "home")
    made.sender(home)
    send_all(secondary, made.queues[0], numbered(3, home))
    faulted = made.events.wait_for(ClientFaulted)
    assert (faulted.side, faulted.first) == ("secondary", "primary")
    with pytest.raises(PairFaulted, match="primary"):
        made.sender(home)
    assert secondary.counts(made.queues[0]).active == 3
    own_closer.close(form.close)


@covers("N14")
def test_a_closed_client_takes_its_partner_along_and_nothing_is_lost(
    form: Form, pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    home = new_queue(primary, "home")
    form.call(pair.primary.close)
    pair.events.wait_for(ClientFaulted)
    with pytest.raises(PairFaulted, match="primary"):
        pair.sender(home)
    send_all(secondary, pair.queues[0], numbered(3, home))
    assert secondary.counts(pair.queues[0]).active == 3
    assert primary.counts(home).active == 0


@covers("N14")
@pytest.mark.parametrize("first", ["secondary", "primary"])
def test_a_client_that_is_closed_before_the_pair_is_closed_in_order_and_the_sdk_complains_of_nothing(
    pair: Pair,
    primary: EmbeddedNamespace,
    secondary: EmbeddedNamespace,
    first: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home = new_queue(primary, "home")
    send_all(secondary, pair.queues[0], numbered(5, home))
    wait_until(lambda: primary.counts(home).active == 5 and secondary.counts(pair.queues[0]).active == 0)
    caplog.clear()
    pair.form.call((pair.secondary if first == "secondary" else pair.primary).close)
    pair.form.call((pair.primary if first == "secondary" else pair.secondary).close)
    pair.close()
    told_by = ("azure", "tandembus.pairing", "tandembus.syphon")
    complaints = [each for each in caplog.records if each.levelno >= logging.WARNING and each.name.startswith(told_by)]
    assert [each.getMessage() for each in complaints] == []
