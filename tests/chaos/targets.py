"""What the load of the fault matrix is sent to, and where that comes out again."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

from tandembus.client import OutgoingMessage
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityCounts, QueueSettings, SubscriptionSettings, TopicSettings
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.namespace.partitioning import fragment_of_key
from tests.chaos.recorder import Recorder, body_of

LARGEST_BODY = 2000


@dataclass(frozen=True, slots=True)
class Target:
    """A queue or topic of the load, and what is sent to it."""

    name: str
    settings: QueueSettings
    keys: int = 0
    """How many partition keys its senders choose from, spread evenly over the fragments; 0: they give none."""
    sessions: int = 0
    """The same for sessions."""
    batch: int = 1
    """How many messages go in one transfer."""
    subscriptions: int = 0
    """It is a topic, and everything comes out of each of so many subscriptions."""
    forwards_to: str = ""
    """It is a queue that nobody receives from: this conventional one gets everything."""
    is_at_most_once: bool = False
    """Its receivers delete what they receive."""
    is_paired: bool = False
    """Its senders are those of a pair."""

    @property
    def is_deduplicating(self) -> bool:
        return bool(self.settings.requires_duplicate_detection)

    @property
    def is_partitioned(self) -> bool:
        return bool(self.settings.partitioning)

    @property
    def lock_s(self) -> float:
        return self.settings.lock_duration_s or 60.0

    @property
    def outlets(self) -> tuple[str, ...]:
        """The paths that its messages are received from."""
        if self.subscriptions:
            return tuple(f"{self.name}/subscriptions/{number}" for number in range(self.subscriptions))
        return (self.forwards_to or self.name,)

    async def create(self, administration: Administration) -> None:
        if self.subscriptions:
            await administration.create_topic(self.name, TopicSettings(partitioning=self.settings.partitioning))
            for number in range(self.subscriptions):
                lock = SubscriptionSettings(lock_duration_s=self.lock_s)
                await administration.create_subscription(self.name, str(number), lock)
        elif self.forwards_to:
            await administration.create_queue(self.forwards_to, QueueSettings(lock_duration_s=self.lock_s))
            await administration.create_queue(self.name, replace(self.settings, forward_to=self.forwards_to))
        else:
            await administration.create_queue(self.name, self.settings)

    def introduce(self, recorder: Recorder) -> None:
        """Says what a history has to say of it."""
        fragments = FRAGMENT_COUNT if self.is_partitioned else 1
        window_s = self.settings.duplicate_detection_window_s or 0.0
        if self.outlets != (self.name,):
            recorder.say("entity", entity=self.name, fragments=fragments, is_paired=self.is_paired)
        for path in self.outlets:
            recorder.say(
                "entity",
                entity=path,
                fragments=1 if self.forwards_to else fragments,
                has_sessions=self.sessions > 0,
                duplicate_window_s=window_s,
                lock_s=self.lock_s,
                source=self.name if path != self.name else "",
                is_at_most_once=self.is_at_most_once,
                is_paired=self.is_paired,
            )

    async def counts(self, administration: Administration, path: str) -> EntityCounts:
        """Of one of its outlets, or of itself."""
        topic, _, subscription = path.partition("/subscriptions/")
        if subscription:
            return (await administration.get_subscription(topic, subscription)).counts
        return (await administration.get_queue(path)).counts

    def key_of(self, message: OutgoingMessage) -> str | None:
        """What decides the fragment on a partitioned entity; the id does where duplicates are detected."""
        if message.session_id is not None or message.partition_key is not None:
            return message.session_id or message.partition_key
        return message.message_id if self.is_deduplicating else None

    def messages(self, chance: random.Random, ids: list[str], lane: str) -> list[OutgoingMessage]:
        """What goes in one transfer has one key. A session belongs to one lane of one sender: only so the order in
        which its messages were sent is known."""
        session = f"{lane}.{chance.randrange(self.sessions)}" if self.sessions else None
        key = any_key(chance, self.keys) if self.keys else None
        return [
            OutgoingMessage(body_of(chance, LARGEST_BODY), one, session_id=session, partition_key=key) for one in ids
        ]


def any_key(chance: random.Random, keys: int) -> str:
    """One of so many, each fragment as likely as the others."""
    return key_in(chance.randrange(FRAGMENT_COUNT), chance.randrange(max(1, keys // FRAGMENT_COUNT)))


@cache
def key_in(fragment: int, number: int = 0) -> str:
    """A partition key of this fragment; each number gives another."""
    found = (f"{number}-{at}" for at in range(100 * FRAGMENT_COUNT))
    return next(key for key in found if fragment_of_key(key) == fragment)
