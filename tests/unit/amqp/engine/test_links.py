"""Attach, flow, drain and detach between two engines, and from a peer that writes its frames by hand."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import Described, Encoded, decode, symbol, symbols, ubyte, uint
from tandembus.amqp.encoding.frames import AMQP_HEADER, frame
from tandembus.amqp.engine import (
    AmqpError,
    ConnectionClosed,
    EngineSettings,
    IncomingLink,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    OutgoingLink,
    SessionBegun,
    SessionEnded,
)
from tandembus.errors import InvalidOperation
from tests.unit.amqp.engine.peers import (
    ATTACH,
    DETACH,
    END,
    FLOW,
    HandWritten,
    Pair,
    attach_frame,
    begin_frame,
    detach_frame,
    end_frame,
    filtered,
    flow_frame,
    of,
    only,
    open_frame,
    transfer_frame,
)

NOT_FOUND = AmqpError("amqp:not-found", "no such queue")


def test_a_session_begins_on_both_sides() -> None:
    pair = Pair().open()
    session = pair.begin()
    assert only(SessionBegun, pair.at_client).session is session
    peer = only(SessionBegun, pair.at_server).session
    assert pair.server.sessions == {int(peer.channel): peer}
    assert pair.client.sessions == {int(session.channel): session}


def test_links_may_be_attached_before_the_session_is_answered() -> None:
    pair = Pair().open()
    session = pair.client.begin()
    session.attach_sender("early", "queue")
    pair.exchange()
    assert only(LinkAttaching, pair.at_server).link.name == "early"


def test_a_link_is_attached_as_both_sides_said() -> None:
    pair = Pair().open()
    session = pair.begin()
    link = session.attach_receiver(
        "in",
        filtered({"com.microsoft:session-filter": None}),
        snd_settle_mode=0,
        rcv_settle_mode=1,
        properties={"com.microsoft:timeout": 5},
    )
    pair.exchange()
    peer = only(LinkAttaching, pair.at_server).link
    assert isinstance(peer, OutgoingLink)
    assert peer.peer_is_receiver
    assert (peer.snd_settle_mode, peer.rcv_settle_mode) == (0, 1)
    assert peer.properties == {"com.microsoft:timeout": 5}
    assert peer.source is not None
    assert peer.source.filter == {"com.microsoft:session-filter": None}
    assert not link.is_attached
    peer.accept(
        properties={"com.microsoft:locked-until-utc": 2**62},
        source=peer.source.with_filter({"com.microsoft:session-filter": "s1"}),
    )
    pair.exchange()
    assert only(LinkAttached, pair.at_client).link is link
    assert link.is_attached
    assert link.properties == {"com.microsoft:locked-until-utc": 2**62}
    assert link.source is not None
    assert link.source.address == "queue"
    assert link.source.filter == {"com.microsoft:session-filter": "s1"}


def test_a_sender_learns_the_largest_message_and_its_credit() -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin(), limit=262_144)
    assert link.max_message_size == 262_144
    assert link.credit == 100
    assert peer.credit == 100
    assert only(LinkFlow, pair.at_client).link is link


def test_a_refused_link_is_detached_with_the_reason_and_never_attached() -> None:
    pair = Pair().open()
    link = pair.begin().attach_sender("out", "nowhere")
    pair.exchange()
    only(LinkAttaching, pair.at_server).link.refuse(NOT_FOUND)
    pair.exchange()
    assert of(LinkAttached, pair.at_client) == []
    detached = only(LinkDetached, pair.at_client)
    assert detached.link is link
    assert detached.error == NOT_FOUND
    assert detached.by_peer
    answered = only(LinkDetached, pair.at_server)
    assert not answered.by_peer
    assert pair.server.link_count == pair.client.link_count == 0


def test_a_link_may_be_answered_later_even_if_the_peer_gave_up() -> None:
    peer = HandWritten().open()
    link = only(LinkAttaching, peer.send(attach_frame())).link
    assert only(LinkDetached, peer.send(detach_frame())).link is link
    assert [one.code for one in peer.frames] == [ATTACH, DETACH]
    link.accept()
    link.refuse(NOT_FOUND)
    link.detach()
    assert peer.take() == []


def test_detaching_a_link_that_was_never_accepted_refuses_it() -> None:
    peer = HandWritten().open()
    only(LinkAttaching, peer.send(attach_frame())).link.detach(NOT_FOUND)
    assert [one.code for one in peer.take()] == [ATTACH, DETACH]


@pytest.mark.parametrize("is_client", [True, False])
def test_either_side_may_detach_and_both_hear_of_it_once(is_client: bool) -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin())
    (link if is_client else peer).detach(NOT_FOUND)
    pair.exchange()
    mine, theirs = (pair.at_client, pair.at_server) if is_client else (pair.at_server, pair.at_client)
    assert not only(LinkDetached, mine).by_peer
    assert only(LinkDetached, theirs).by_peer
    assert only(LinkDetached, theirs).error == NOT_FOUND
    assert link.session.links == peer.session.links == {}


def test_a_name_and_a_handle_can_be_used_again_after_detach() -> None:
    pair = Pair().open()
    session = pair.begin()
    link, _ = pair.sender(session, "same")
    link.detach()
    pair.exchange()
    again, _ = pair.sender(session, "same")
    assert again.is_attached
    assert again.handle == link.handle


def test_many_links_and_sessions_share_a_connection() -> None:
    pair = Pair().open()
    links = [pair.sender(pair.begin(), f"link {number}")[0] for number in range(3)]
    links += [pair.sender(links[0].session, f"more {number}")[0] for number in range(300)]
    assert len({(int(link.session.channel), int(link.handle)) for link in links}) == 303
    for number, link in enumerate(links):
        link.send(b"t", b"%d" % number, True, None)
    pair.exchange()
    assert len(pair.at_server) == 303


def test_the_same_name_attached_again_takes_the_link_over() -> None:
    peer = HandWritten().open()
    old = peer.attach_sender(1, "same")
    events = peer.send(attach_frame(2, False, "same"))
    detached = only(LinkDetached, events)
    assert detached.link is old
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:stolen"
    assert only(LinkAttaching, events).link is not old
    assert peer.send(detach_frame(1)) == []


def test_names_are_apart_for_both_directions() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1, "same")
    peer.attach_receiver(2, "same")
    assert peer.server.link_count == 2


def test_a_handle_in_use_ends_the_session_and_leaves_the_connection() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    ended = only(SessionEnded, peer.send(attach_frame(1, False, "other")))
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:handle-in-use"
    assert [one.code for one in peer.frames] == [END]
    assert peer.send(transfer_frame(0, b"ignored until the peer's end")) == []
    assert not peer.server.is_closed


def test_links_that_are_let_go_with_their_session_are_counted_out_once() -> None:
    for frames in ([end_frame()], [attach_frame(1, False, "other"), end_frame()], [attach_frame(1, False, "other")]):
        peer = HandWritten().open()
        link = peer.attach_sender(1)
        link.context = object()
        ended = only(SessionEnded, peer.send(*frames))
        assert list(ended.session.links.values()) == [link], "the application has still to hear of it"
        ended.session.let_go()
        assert (peer.server.link_count, link.context, ended.session.links) == (0, None, {})
        if len(frames) == 1:
            peer.send(end_frame())
            assert peer.server.link_count == 0


@pytest.mark.parametrize("data", [transfer_frame(0, b"x", handle=9), flow_frame(9, 10, 0)])
def test_frames_for_a_handle_that_is_not_attached_end_the_session(data: bytes) -> None:
    ended = only(SessionEnded, HandWritten().open().send(data))
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"


def test_a_detach_for_a_free_handle_is_ignored() -> None:
    peer = HandWritten().open()
    assert peer.send(detach_frame(9)) == []
    assert peer.frames == []


def test_a_transfer_to_a_link_that_sends_ends_the_session() -> None:
    peer = HandWritten().open()
    peer.attach_receiver(1)
    ended = only(SessionEnded, peer.send(transfer_frame(0, b"x")))
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:errant-link"


def test_links_beyond_the_limit_are_refused_and_then_the_connection() -> None:
    peer = HandWritten(EngineSettings(True, "server", max_links=2)).open()
    assert len(peer.send(*[attach_frame(handle, False, f"l{handle}") for handle in range(2)])) == 2
    assert peer.send(attach_frame(2, False, "l2")) == []
    assert [one.code for one in peer.frames] == [ATTACH, DETACH]
    assert peer.frames[0].fields[5:7] == [None, None]
    peer.send(attach_frame(3, False, "l3"))
    error = only(ConnectionClosed, peer.send(attach_frame(4, False, "l4"))).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


def test_a_peer_that_allows_few_handles_gets_no_more() -> None:
    peer = HandWritten()
    peer.send(AMQP_HEADER, open_frame(), begin_frame(handle_max=0))
    assert len(peer.send(attach_frame(7, False, "a"))) == 1
    ended = only(SessionEnded, peer.send(attach_frame(8, False, "b")))
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"


def test_ending_a_session_ends_its_links() -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin())
    link.session.end(NOT_FOUND)
    pair.exchange()
    ended = only(SessionEnded, pair.at_server)
    assert ended.error == NOT_FOUND
    assert list(ended.session.links.values()) == [peer]
    assert not peer.is_attached
    assert only(SessionEnded, pair.at_client).session is link.session
    assert pair.server.sessions == pair.client.sessions == {}
    assert pair.server.link_count == 0
    with pytest.raises(InvalidOperation):
        link.session.attach_sender("late", "queue")


def test_a_session_may_be_ended_before_it_was_answered() -> None:
    pair = Pair().open()
    session = pair.client.begin()
    session.end()
    pair.exchange()
    assert only(SessionEnded, pair.at_client).session is session
    assert pair.client.sessions == {}
    assert pair.begin().channel == session.channel


def test_credit_is_the_receiver_s_count_plus_what_it_grants_less_what_we_sent() -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1)
    only(LinkFlow, peer.send(flow_frame(1, 10, 0)))
    assert link.credit == 10
    for number in range(4):
        link.send(b"t", b"%d" % number, False, None)
    assert link.credit == 6
    peer.send(flow_frame(1, 10, 2))
    assert link.credit == 8
    peer.send(flow_frame(1, 1, 0))
    assert link.credit == 0
    peer.send(flow_frame(1, 2**32 - 1, 4))
    assert link.credit == 2**32 - 1
    peer.send(flow_frame(1, 7, None))
    assert link.credit == 3


def test_the_delivery_count_wraps_around() -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1)
    link.delivery_count = 2**32 - 2
    peer.send(flow_frame(1, 10, 2**32 - 2))
    for _ in range(3):
        link.send(b"t", b"", True, None)
    assert link.delivery_count == 1
    peer.send(flow_frame(1, 10, 2**32 - 1))
    assert link.credit == 8


def test_credit_that_comes_with_the_attach_is_there_once_accepted() -> None:
    peer = HandWritten().open()
    events = peer.send(attach_frame(1, True), flow_frame(1, 5, None))
    assert [type(event) for event in events] == [LinkAttaching, LinkFlow]
    link = only(LinkAttaching, events).link
    assert isinstance(link, OutgoingLink)
    link.accept()
    assert link.credit == 5


def test_an_echo_is_answered_with_the_link_s_state() -> None:
    peer = HandWritten().open()
    peer.attach_receiver(1, credit=5)
    peer.send(flow_frame(1, 5, 0, echo=True))
    assert [one.code for one in peer.frames] == [FLOW]
    assert peer.frames[0].fields[4:7] == [1, 0, 5]
    peer.send(flow_frame(echo=True))
    assert peer.frames[0].fields[4:] == [None] * 7
    peer.attach_sender(2, "other", credit=9)
    peer.send(flow_frame(2, 1000, 0, echo=True))
    assert peer.frames[0].fields[4:7] == [2, 0, 9]


def test_draining_sends_what_there_is_and_gives_the_rest_of_the_credit_back() -> None:
    pair = Pair().open()
    link, peer = pair.receiver(pair.begin())
    link.grant(10)
    pair.exchange()
    assert peer.credit == 10
    link.drain()
    pair.exchange()
    assert only(LinkFlow, pair.at_server).link is peer
    assert peer.drain
    peer.send(b"t", b"last", True, None)
    peer.drained()
    pair.exchange()
    assert not peer.drain
    assert link.credit == peer.credit == 0
    assert link.delivery_count == peer.delivery_count == 10
    assert only(LinkFlow, pair.at_client).link is link
    link.grant(3)
    pair.exchange()
    assert peer.credit == 3


def test_a_drain_without_credit_is_answered_too() -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1)
    peer.send(flow_frame(1, 0, 0, drain=True, echo=True))
    assert peer.frames == []  # the answer comes when the application has drained
    link.drained()
    flow = peer.take()[0]
    assert flow.fields[4:7] == [1, 0, 0]
    assert flow.fields[8] is True


def test_a_sender_s_own_credit_field_means_nothing() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1, credit=7)
    assert peer.send(flow_frame(1, 10_000, 0)) == []
    assert link.credit == 7


def test_transfers_far_beyond_credit_detach_the_link() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1)
    events = peer.send(*[transfer_frame(number, b"") for number in range(10_100)])
    assert len(events) == 10_100
    detached = only(LinkDetached, peer.send(transfer_frame(10_100, b""), transfer_frame(10_101, b"")))
    assert detached.link is link
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"
    assert [one.code for one in peer.frames] == [DETACH]
    assert peer.send(detach_frame(1)) == []


def test_a_coordinator_is_recognised() -> None:
    coordinator = Described(0x30, [symbols(["amqp:local-transactions"])])
    fields: list[object] = ["tx", uint(3), False, ubyte(0), ubyte(0), Described(0x28, [None]), coordinator]
    link = only(LinkAttaching, HandWritten().open().send(frame(0, 1, ATTACH, fields))).link
    assert isinstance(link, IncomingLink)
    assert link.target is not None
    assert link.target.is_coordinator
    assert link.target.capabilities == ["amqp:local-transactions"]
    assert decode(link.target.encoded())[0] == decode(b"\x00\x53\x30" + link.target.raw)[0]


def test_one_capability_may_stand_for_an_array_of_one() -> None:
    source = Described(0x28, ["q", None, None, None, None, None, None, None, None, None, symbol("topic")])
    link = only(LinkAttaching, HandWritten().open().send(attach_frame(source=source))).link
    assert link.source is not None
    assert link.source.capabilities == ["topic"]


def test_a_source_that_is_malformed_where_nobody_looks_is_not_echoed() -> None:
    passed_over = b"\x00\x53\x28\xc0\x0c\x09\xa1\x01q" + b"\x40" * 5 + b"\xa1\x01\xff\x40"
    for source in (passed_over, b"\x00\x53\x28\xc0\x05\x01\xa1\x01q\x40"):
        closed = only(ConnectionClosed, HandWritten().open().send(attach_frame(source=Encoded(source))))
        assert closed.error is not None
        assert closed.error.condition == "amqp:decode-error"
