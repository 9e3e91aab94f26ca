"""A topic with two subscriptions, and something in all of them."""

from __future__ import annotations

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.descriptions import (
    FalseFilter,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.store.messaging_store import DEAD_LETTER
from tests.unit.namespace.namespace_lives import Life, Machine

NEWS = TopicDescription("News")
AUDIT = SubscriptionDescription("news", "Audit")
MAIL = SubscriptionDescription("news", "Mail")
AUDIT_PATH, MAIL_PATH = "news/subscriptions/audit", "news/subscriptions/mail"
NOTHING = RuleDescription("nothing", FalseFilter())
EVERYTHING = RuleDescription("everything", TrueFilter())


async def make_topic(life: Life) -> None:
    await life.namespace.create_topic(NEWS)
    for description in (AUDIT, MAIL):
        await life.namespace.create_subscription(description)


async def fill(life: Life) -> None:
    """'a' only in Audit, 'b' in both, 'dead' among Audit's dead letters, 'later' scheduled."""
    await make_topic(life)
    await life.send("news", "a", "b", "dead")
    mails = await life.receive(MAIL_PATH, 3)
    audits = await life.receive(AUDIT_PATH, 3)
    for lock, settlement in zip(mails, (COMPLETE, RELEASE, COMPLETE), strict=True):
        await life.settle(MAIL_PATH, lock, settlement)
    for lock, settlement in zip(audits, (RELEASE, RELEASE, TO_DEAD_LETTERS), strict=True):
        await life.settle(AUDIT_PATH, lock, settlement)
    await life.send("news", "later", scheduled_in_s=1000.0)


async def assert_filled(life: Life) -> None:
    assert await life.peek(MAIL_PATH) == ["b"]
    assert await life.peek(AUDIT_PATH) == ["a", "b"]
    assert await life.peek(AUDIT_PATH, DEAD_LETTER) == ["dead"]


def close_all(life: Life) -> None:
    life.clock.advance(life.machine.limits.fragment_idle_s + 1)
    life.namespace._open.let_go_of_unused(life.clock.now())
    life.namespace.hosts[0].let_go_of_unused(life.clock.now())
    assert life.broker.fragments() == []


def assert_empty(machine: Machine, life: Life) -> None:
    disk = machine.disk
    assert (disk.bodies, disk.blocks, disk.overlays, disk.heads) == ({}, {}, {}, {})
    assert life.catalog.tombstones() == []
