"""A client that detaches before its attach is answered."""

from __future__ import annotations

from tandembus.amqp.engine import LinkDetached
from tests.covers import covers
from tests.unit.amqp.engine.peers import Pair, of


@covers("M12")
def test_the_answer_to_an_attach_given_up_is_taken_for_no_new_link() -> None:
    pair = Pair().open()
    session = pair.begin()
    session.attach_receiver("in", "queue").detach()
    pair.exchange()
    assert len(of(LinkDetached, pair.at_client)) == 1
    assert not session.links
    assert not any(one.links for one in pair.server.sessions.values())


@covers("M12")
def test_the_name_of_an_attach_given_up_can_be_attached_again() -> None:
    pair = Pair().open()
    session = pair.begin()
    session.attach_sender("out", "queue").detach()
    pair.exchange()
    link, _ = pair.sender(session, "out")
    assert link.is_attached
