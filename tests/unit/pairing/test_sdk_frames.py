"""Frames of the SDK's links, as the syphon reads them."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp import outcomes
from azure.servicebus._pyamqp._transport import SSLTransport
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from tandembus.pairing import sdk_payloads
from tandembus.pairing.sdk_frames import (
    Arrival,
    Confirmations,
    Parts,
    accepted,
    check_sdk,
    dead_lettered,
    deferred,
    is_frame_there,
    released,
)
from tandembus.pairing.sdk_payloads import LINK_CALLS, LINK_FIELDS, UnknownSdk, link_of, show_payloads
from tests.covers import covers

TOKEN = uuid.UUID(int=7)
SENDER, RECEIVER = False, True
LOST = {"rejected": [[b"com.microsoft:message-lock-lost", b"gone", None]]}


def transfer(delivery_id: int | None, payload: bytes, more: bool = False, aborted: bool = False) -> list[object]:
    tag = None if delivery_id is None else TOKEN.bytes_le
    return [0, delivery_id, tag, 0, False, more, None, None, None, aborted, None, memoryview(payload)]


@covers("N8")
def test_a_message_of_several_frames_is_put_together() -> None:
    parts = Parts()
    assert parts.add(transfer(3, b"one", more=True)) is None
    assert parts.add(transfer(None, b"two", more=True)) is None
    whole = parts.add(transfer(None, b""))
    assert whole is not None
    assert (whole.delivery_id, whole.payload, whole.lock_token) == (3, b"onetwo", TOKEN)
    following = parts.add(transfer(4, b"next"))
    assert following is not None
    assert following.payload == b"next"


@covers("N8")
def test_nothing_is_made_of_a_message_that_the_service_broke_off() -> None:
    parts = Parts()
    parts.add(transfer(3, b"half", more=True))
    assert parts.add(transfer(None, b"", aborted=True)) is None
    whole = parts.add(transfer(4, b"whole"))
    assert whole is not None
    assert whole.payload == b"whole"


@covers("N8", "N12")
@pytest.mark.parametrize(
    "frames",
    [
        [transfer(3, b"begun", more=True), transfer(4, b"another")],
        [transfer(None, b"the rest of what never began")],
        [transfer(3, b"whole"), transfer(None, b"and more")],
    ],
    ids=["two at once", "no beginning", "after the end"],
)
def test_frames_that_do_not_follow_each_other_are_never_one_message(frames: list[list[object]]) -> None:
    parts = Parts()
    for frame in frames[:-1]:
        parts.add(frame)
    with pytest.raises(ServiceBusConnectionError, match="out of order"):
        parts.add(frames[-1])
    with pytest.raises(ServiceBusConnectionError, match="out of order"):
        parts.add(transfer(9, b"nobody knows what else was mixed up"))


@covers("N8")
def test_later_frames_may_name_the_message_that_they_are_of() -> None:
    parts = Parts()
    parts.add(transfer(3, b"", more=True))
    whole = parts.add(transfer(3, b"two"))
    assert whole is not None
    assert (whole.delivery_id, whole.payload) == (3, b"two")


@covers("N11")
def test_a_settlement_is_over_when_each_message_is_confirmed() -> None:
    confirmations = Confirmations([0xFFFFFFFF, 0, 5], accepted())
    confirmations.hear([SENDER, 0xFFFFFFFF, 0, True, {"accepted": []}])
    assert not confirmations.are_complete()
    confirmations.hear([SENDER, 5, None, False, {"accepted": []}])
    confirmations.hear([RECEIVER, 5, None, True, {"accepted": []}])
    assert not confirmations.are_complete()
    confirmations.hear([SENDER, 5, None, True, {"accepted": []}])
    assert confirmations.are_complete()
    assert confirmations.lost() == set()


@covers("N12")
def test_lost_locks_are_told_from_other_refusals() -> None:
    confirmations = Confirmations([1, 2, 3], deferred())
    confirmations.hear([SENDER, 1, None, True, LOST])
    confirmations.hear([SENDER, 2, None, True, {"modified": [True, True, None]}])
    confirmations.hear([SENDER, 3, None, True, None])
    assert confirmations.lost() == {1, 3}
    confirmations = Confirmations([4], dead_lettered("why", "because"))
    confirmations.hear([SENDER, 4, None, True, {"rejected": [[b"com.microsoft:server-busy", b"busy", None]]}])
    with pytest.raises(ServiceBusError, match="busy"):
        confirmations.lost()


@covers("N12")
def test_a_dead_letter_is_confirmed_by_a_rejection_without_an_error() -> None:
    confirmations = Confirmations([4], dead_lettered("why", "because"))
    confirmations.hear([SENDER, 4, None, True, {"rejected": [None]}])
    assert confirmations.lost() == set()
    confirmations = Confirmations([5], released())
    confirmations.hear([SENDER, 5, None, True, {"released": []}])
    assert confirmations.lost() == set()


@covers("N17")
def test_a_version_of_the_sdk_that_does_not_show_its_links_is_refused_clearly() -> None:
    with pytest.raises(UnknownSdk, match="run `tandembus syphon`"):
        link_of(Arrival(0, b"", b""))
    with pytest.raises(UnknownSdk):
        show_payloads(Arrival(0, b"", b""))


def receiver_without(gone: str) -> SimpleNamespace:
    """An open receiver of the SDK's, as far as a syphon looks at it."""
    link = SimpleNamespace(**dict.fromkeys(LINK_CALLS, print), **dict.fromkeys(LINK_FIELDS))
    link._received_delivery_tags = set()
    handler = SimpleNamespace(do_work=print, _link=link, _connection=SimpleNamespace(listen=print))
    receiver = SimpleNamespace(_running=True, _handler=handler)
    for part in (receiver, handler, handler._connection, link):
        vars(part).pop(gone, None)
    return receiver


@covers("N17")
@pytest.mark.parametrize("gone", ["_running", "_handler", "do_work", "_link", "listen", *LINK_CALLS, *LINK_FIELDS])
def test_whatever_a_syphon_needs_of_a_link_is_looked_for_beforehand(gone: str) -> None:
    assert link_of(receiver_without("nothing")) is not None
    with pytest.raises(UnknownSdk):
        link_of(receiver_without(gone))


@covers("N17")
def test_what_a_syphon_needs_beside_a_link_is_looked_for_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sdk()
    monkeypatch.delattr(outcomes, "Released")
    with pytest.raises(UnknownSdk):
        check_sdk()
    monkeypatch.undo()
    monkeypatch.setattr(sdk_payloads, "BATCH_FIELDS", ("_is_gone",))
    with pytest.raises(UnknownSdk):
        check_sdk()


@covers("N12")
async def test_a_frame_is_read_without_a_limit_only_if_all_of_it_is_there_for_us() -> None:
    transport: Any = AsyncTransport("localhost")
    connection = SimpleNamespace(_transport=transport)
    assert not is_frame_there(connection)
    transport.reader = asyncio.StreamReader()
    frame = bytes.fromhex("0000000c02000000") + b"body"
    transport.reader.feed_data(frame[:11])
    assert not is_frame_there(connection)
    transport.reader.feed_data(frame[11:])
    assert is_frame_there(connection)
    async with transport.socket_lock:
        assert not is_frame_there(connection)
    assert bytes((await transport.read())[2]) == b"body"
    assert not is_frame_there(connection)


@covers("N12")
async def test_the_rest_of_a_frame_is_not_taken_for_one() -> None:
    """The SDK has begun to read a frame, and was interrupted."""
    transport: Any = AsyncTransport("localhost")
    transport.reader = asyncio.StreamReader()
    transport.reader.feed_data(bytes.fromhex("0000001402000000"))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(transport.read(), 0.01)
    transport.reader.feed_data(bytes.fromhex("0000000802000000"))
    assert not is_frame_there(SimpleNamespace(_transport=transport))


@covers("N12")
def test_where_nobody_can_tell_frames_are_waited_for_as_ever() -> None:
    make: Any = SSLTransport
    for transport in (None, make("localhost")):
        assert not is_frame_there(SimpleNamespace(_transport=transport))
