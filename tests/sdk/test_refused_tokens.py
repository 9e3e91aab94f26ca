"""Tokens that grant nothing, as they may come on `$cbs`: each is refused with a status, and the link goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import MessageSections
from tandembus.amqp.encoding.values import int_
from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.raw_amqp import SENDER, Node, RawAmqp, assert_has_three_fields, plain, texts
from tests.integration.serving import KEY
from tests.integration.shapes import PARTITIONED_ON_BROKERS, PLAIN, on_shapes

pytestmark = on_shapes(PLAIN, PARTITIONED_ON_BROKERS)

HOST = "sb://localhost"
LARGEST_TOKEN = 16 * 1024


@pytest.fixture
def stranger(bus: Bus) -> Iterator[RawAmqp]:
    """Somebody who has shown nothing yet."""
    with RawAmqp(bus.running.port) as raw:
        raw.start("MSSBCBS")
        raw.begin()
        yield raw


def token_for(audience: str, policy: str = ROOT_POLICY, key: str = KEY, lives_s: float = 60.0) -> str:
    return make_token(audience, policy, key, SystemClock().now() + lives_s)


def without(field: str, token: str) -> str:
    prefix, _, fields = token.partition(" ")
    return f"{prefix} {'&'.join(one for one in fields.split('&') if not one.startswith(field + '='))}"


def refused(reply: MessageSections, status: int) -> None:
    found = texts(reply.application_properties)
    assert found.keys() == {"status-code", "status-description"}, "a condition beside them would hide the status"
    assert plain(found["status-code"]) == status
    assert isinstance(found["status-description"], str)
    assert 0 < len(found["status-description"]) < 300


def check_is_still_a_stranger(raw: RawAmqp, node: Node, queue: str) -> None:
    """What was refused has opened nothing, and a good token does."""
    raw.attach_sender(SENDER, queue)
    assert_has_three_fields(raw.expect(codes.DETACH).error(2), "amqp:unauthorized-access")
    reply = raw.put_token(f"{HOST}/{queue}", token_for(f"{HOST}/{queue}"), node)
    assert plain(texts(reply.application_properties)["status-code"]) == 202
    raw.attach_sender(SENDER + 1, queue)
    assert raw.expect(codes.FLOW)


@covers("M15")
@pytest.mark.parametrize(
    "kind",
    [
        *("empty", "no signature", "words", "without sr", "without sig", "without se", "without skn", "twice the same"),
        *("an end that is no number", "an end beyond all time", "expired", "another key", "another policy"),
        *("another entity", "a longer name", "not a URI", "too large", "far too large", "of many fields"),
    ],
)
def test_a_token_that_is_no_good_is_refused(stranger: RawAmqp, bus: Bus, queue: str, kind: str) -> None:
    audience = f"{HOST}/{queue}"
    good = token_for(audience)
    token = {
        "empty": "",
        "no signature": "SharedAccessSignature ",
        "words": "let me in",
        "without sr": without("sr", good),
        "without sig": without("sig", good),
        "without se": without("se", good),
        "without skn": without("skn", good),
        "twice the same": f"{good}&sr=x",
        "an end that is no number": good.replace("se=", "se=x"),
        "an end beyond all time": good.replace("se=", "se=" + "9" * 400),
        "expired": token_for(audience, lives_s=-60.0),
        "another key": token_for(audience, key=KEY[::-1]),
        "another policy": token_for(audience, policy="nobody"),
        "another entity": token_for(f"{HOST}/{bus.make_queue()}"),
        "a longer name": token_for(f"{HOST}/{queue}er"),
        "not a URI": token_for("http://[::1"),
        "too large": good + "&x=" + "x" * LARGEST_TOKEN,
        "far too large": "x" * 200_000,
        "of many fields": good + "&a=b" * 100,
    }[kind]
    node = stranger.attach_node("$cbs")
    refused(stranger.put_token(audience, token, node), 401)
    check_is_still_a_stranger(stranger, node, queue)


@covers("M15")
@pytest.mark.parametrize(
    ("name", "token"),
    [(None, "text"), (7, "text"), (HOST, b"bytes"), (HOST, {"a": 1}), (HOST, None), (f"{HOST}/{'q' * 5000}", "text")],
    ids=["no audience", "a number as audience", "binary", "a map", "nothing", "a huge audience"],
)
def test_a_request_that_is_none_is_refused(stranger: RawAmqp, queue: str, name: object, token: object) -> None:
    node = stranger.attach_node("$cbs")
    properties: dict[str, object] = {"operation": "put-token", "type": "jwt"}
    if name is not None:
        properties["name"] = int_(name) if isinstance(name, int) else name
    reply = node.ask(properties, token)
    status = plain(texts(reply.application_properties)["status-code"])
    assert status in (400, 401)
    refused(reply, 400 if status == 400 else 401)
    check_is_still_a_stranger(stranger, node, queue)


@covers("M15")
def test_a_refused_token_leaves_the_one_before_it_in_force(stranger: RawAmqp, queue: str) -> None:
    node = stranger.attach_node("$cbs")
    stranger.put_token(f"{HOST}/{queue}", token_for(f"{HOST}/{queue}"), node)
    refused(stranger.put_token(f"{HOST}/{queue}", token_for(f"{HOST}/{queue}", lives_s=-1.0), node), 401)
    stranger.attach_sender(SENDER, queue)
    assert stranger.expect(codes.FLOW)
