"""Opening topics with all their subscriptions; subscriptions that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.subscriptions import FanOut
from tandembus.errors import EntityNotFound
from tandembus.rules import RuleSet
from tandembus.store.messaging_store import LANES

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

SubscriptionPart = tuple[int, FragmentSettings, RuleSet]
"""What a topic needs to know of a subscription: its fragment's key, its settings, its rules."""

RELEASE_SLICE = 1000
"""Messages that a subscription lets go of before others have their turn."""


async def open_topic(
    broker: MessageBroker,
    key: int,
    index: int,
    settings: FragmentSettings,
    subscriptions: Sequence[SubscriptionPart],
    keeps_orphans: bool = False,
) -> Fragment:
    """The topic's fragment with those of all its subscriptions, read from the store on first use. Messages that
    none of them has are dropped, unless there may be others."""
    fragment = broker.by_key.get(key)
    if fragment is not None:
        return fragment
    return await broker.open_once(key, lambda: _open_topic(broker, key, index, settings, subscriptions, keeps_orphans))


async def _open_topic(
    broker: MessageBroker,
    key: int,
    index: int,
    settings: FragmentSettings,
    subscriptions: Sequence[SubscriptionPart],
    keeps_orphans: bool,
) -> Fragment:
    topic = broker.new_fragment(key, index, settings)
    topic.keeps_orphans = keeps_orphans
    topic.fan_out = FanOut(topic)
    for part in subscriptions:
        _new_subscription(broker, topic, topic.fan_out, part)
    await broker.take_up(topic)
    for fragment in (topic, *topic.fan_out.subscriptions.values()):
        broker.room.tell(fragment)
        broker.by_key[int(fragment.key)] = fragment
        broker.forwarding.look(fragment)
    if topic.has_staged() and not topic.is_void:
        topic.look_for_orphans()  # a crash may have come between a subscription's end and that of its messages
    return topic


def _new_subscription(broker: MessageBroker, topic: Fragment, fan_out: FanOut, part: SubscriptionPart) -> Fragment:
    key, settings, rules = part
    fragment = broker.new_fragment(key, int(topic.index), settings)
    fragment.topic = topic
    fragment.rules = rules
    fan_out.subscriptions[key] = fragment
    return fragment


def add_subscription(
    broker: MessageBroker, topic: Fragment, key: int, settings: FragmentSettings, rules: RuleSet
) -> Fragment:
    """A new subscription gets what is sent from now on; its fragment was made before."""
    assert topic.fan_out is not None
    fragment = _new_subscription(broker, topic, topic.fan_out, (key, settings, rules))
    if topic.is_void and topic.failure is not None:
        fragment.fail(topic.failure)  # read with its topic when the store is back
    else:
        fragment.start_over(broker.store.epoch, [[] for _ in LANES], None)
        if settings.requires_session:
            topic.main.begin_column()
    broker.room.tell(fragment)
    broker.by_key[key] = fragment
    return fragment


async def drop_subscription(broker: MessageBroker, topic: Fragment, key: int) -> None:
    """What only this subscription had is gone; the rest stays with the others. Its own records go with its
    fragment, see `drop_fragments`."""
    assert topic.fan_out is not None
    fragment = topic.fan_out.subscriptions.pop(key, None)
    if fragment is None:
        return
    broker.by_key.pop(key, None)
    fragment.fail(EntityNotFound("The messaging entity was deleted."))
    async with broker.commit_lock:
        pass  # a commit under way may still give it messages
    lane = fragment.main
    source = lane.source
    assert source is not None
    if source is topic.main:
        topic.subscription_bytes -= fragment.counted_bytes
    number = 1
    # The topic may be read anew meanwhile, and then knows nothing of this one: what is let go of are the references
    # that this lane has made, and no others.
    while numbers := lane.next_live(number, RELEASE_SLICE):
        for one in numbers:
            source.unrefer(one)
        number = numbers[-1] + 1
        await asyncio.sleep(0)
    topic.look_for_orphans()


def family_of(fragment: Fragment) -> list[Fragment]:
    """A topic with its subscriptions, or a queue alone."""
    head = fragment.topic or fragment
    return [head, *head.fan_out.subscriptions.values()] if head.fan_out is not None else [head]
