"""What is created, changed and deleted while something goes wrong, and how to see that all of it was done or nothing.

Each thing has sixteen fragments, and is used to see what has become of it in each of them: a message goes in for every
fragment, and comes out again under a lock of the duration that was set.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.addresses import rule_path, subscription_path
from tandembus.client.administration import UPDATE, Administration
from tandembus.client.atom import entry_with
from tandembus.client.entities import QueueSettings, SubscriptionSettings, TopicSettings, description_of
from tandembus.descriptions import FalseFilter, RuleDescription, TrueFilter
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import EntityNotFound
from tests.chaos.cluster import CLOCK, LOOK_AGAIN_S, PATIENCE_S
from tests.chaos.targets import key_in

LOCKS_S = (30.0, 60.0)
"""What an update changes: each fragment tells it with every lock that it gives."""
LOCK_SLACK_S = 14.0
"""How much later a message may be looked at than it was locked."""


@dataclass(frozen=True, slots=True)
class Tools:
    administration: Administration
    client: ServiceBus


@asynccontextmanager
async def tools_for(connection_string: str) -> AsyncIterator[Tools]:
    async with (
        Administration(connection_string, timeout_s=PATIENCE_S) as administration,
        await connect(connection_string, timeout_s=PATIENCE_S) as client,
    ):
        yield Tools(administration, client)


class Administered(ABC):
    """One thing, through one step: `prepare`, `carry_out`, `check`, `remove`."""

    steps: tuple[str, ...] = ("create", "update", "delete")
    left_without = 0
    """How many messages are at its outlet when it was deleted and made again."""

    def __init__(self, name: str, tools: Tools) -> None:
        self.name = name
        """Of the entity that has the fragments."""
        self._administration = tools.administration
        self._client = tools.client

    @property
    @abstractmethod
    def outlet(self) -> str:
        """The path that messages are received from."""

    async def surround(self) -> None:
        """Make what it needs around it."""
        return

    @abstractmethod
    async def make(self) -> None: ...

    async def make_usable(self) -> None:
        """Once it is made."""
        return

    async def change(self) -> None:
        """To the second lock duration. One request, so that nothing is looked at before."""
        raise AssertionError(f"{self.name} has nothing that can be changed")

    @abstractmethod
    async def drop(self) -> None: ...

    @abstractmethod
    async def lock_s(self) -> float:
        """EntityNotFound where it is not."""

    async def check_without(self) -> None:
        """What is to be seen while it is not there."""
        return

    @abstractmethod
    async def status(self) -> tuple[str, int | None]:
        """Availability, and messages at the outlet, as Get tells them."""

    @abstractmethod
    async def remove(self) -> None:
        """With all that surrounds it."""

    # One step of it.

    async def prepare(self, step: str) -> None:
        await self.surround()
        if step != "create":
            await self.make()
            await self.make_usable()
            await self.fill()

    async def carry_out(self, step: str) -> None:
        await {"create": self.make, "update": self.change, "delete": self.drop}[step]()

    async def check(self, step: str, is_done: bool) -> None:
        """All of it, or nothing; and what was answered as done, was done."""
        is_there = await self._is_there()
        if step == "update":
            assert is_there
            lock_s = await self.lock_s()
            assert lock_s == LOCKS_S[1] if is_done else lock_s in LOCKS_S
            await self._check_content(lock_s)
        elif step == "create":
            assert is_there or not is_done
            await self._check_new(is_there, 0)
        else:
            assert not (is_there and is_done)
            if is_there:
                await self._check_content(LOCKS_S[0])
            else:
                await self._check_new(False, self.left_without)

    async def _check_new(self, is_there: bool, left: int) -> None:
        """If it is not there its name is free; nothing of an earlier life comes back; and all fragments work."""
        if not is_there:
            await self.check_without()
            await self.make()
        await self.make_usable()
        assert await self.until_available() == left, "old messages came back"
        await self.fill()
        await self._check_content(LOCKS_S[0])

    async def _is_there(self) -> bool:
        try:
            await self.lock_s()
        except EntityNotFound:
            return False
        return True

    # Its use.

    async def fill(self) -> None:
        """One message for each fragment."""
        sender = await self._client.sender(self.name)
        keys = [key_in(fragment) for fragment in range(FRAGMENT_COUNT)]
        await asyncio.gather(*(sender.send(OutgoingMessage(key, partition_key=key)) for key in keys))
        await sender.close()

    async def until_available(self) -> int:
        """Returns how many messages are at the outlet. After an outage stores may take a moment to open again."""
        give_up_at = CLOCK.monotonic() + PATIENCE_S
        while (found := await self.status())[0] != "Available":
            assert CLOCK.monotonic() < give_up_at, f"{self.name} is still {found[0]}"
            await asyncio.sleep(LOOK_AGAIN_S)
        return found[1] or 0

    async def _check_content(self, lock_s: float) -> None:
        """At least one message in each fragment, given out under locks of this duration."""
        await self.until_available()
        receiver = await self._client.receiver(self.outlet)
        seen: dict[int, float] = {}
        while len(seen) < FRAGMENT_COUNT:
            messages = await receiver.receive(FRAGMENT_COUNT, PATIENCE_S)
            assert messages, f"{FRAGMENT_COUNT - len(seen)} messages are missing"
            for message in messages:
                assert message.locked_until is not None
                seen[message.sequence_number >> 48] = message.locked_until - CLOCK.now()
            await receiver.complete(*messages)
        await receiver.close()
        least, most = min(seen.values()), max(seen.values())
        is_everywhere = lock_s - LOCK_SLACK_S < least <= most < lock_s + 1.0
        assert is_everywhere, f"locks of {least:.1f} to {most:.1f} s instead of {lock_s} s"


class AdministeredQueue(Administered):
    @property
    def outlet(self) -> str:
        return self.name

    async def make(self) -> None:
        await self._administration.create_queue(self.name, _queue(LOCKS_S[0]))

    async def change(self) -> None:
        description = description_of(_queue(LOCKS_S[1]), self._administration.requests.namespace)
        await self._administration.requests.entry("PUT", self.name, entry_with(description), UPDATE)

    async def drop(self) -> None:
        await self._administration.requests.entry("DELETE", self.name)

    async def lock_s(self) -> float:
        return (await self._administration.get_queue(self.name)).settings.lock_duration_s or 0.0

    async def status(self) -> tuple[str, int | None]:
        found = await self._administration.get_queue(self.name)
        return found.availability_status or "", found.counts.active

    async def remove(self) -> None:
        await self._administration.delete_queue(self.name)


class AdministeredTopic(Administered):
    steps: tuple[str, ...] = ("create", "delete")
    subscription = "all"

    @property
    def outlet(self) -> str:
        return subscription_path(self.name, self.subscription)

    async def make(self) -> None:
        await self._administration.create_topic(self.name, TopicSettings(partitioning=True))

    async def make_usable(self) -> None:
        """Unless it was there, it has no subscriptions."""
        await self._administration.create_subscription(self.name, self.subscription, _subscription(LOCKS_S[0]))

    async def drop(self) -> None:
        await self._administration.requests.entry("DELETE", self.name)

    async def lock_s(self) -> float:
        await self._administration.get_topic(self.name)
        return LOCKS_S[0]

    async def status(self) -> tuple[str, int | None]:
        topic = await self._administration.get_topic(self.name)
        counts = (await self._administration.get_subscription(self.name, self.subscription)).counts
        return topic.availability_status or "", counts.active

    async def remove(self) -> None:
        await self._administration.delete_topic(self.name)


class AdministeredSubscription(AdministeredTopic):
    steps = ("create", "update", "delete")

    async def surround(self) -> None:
        await super().make()

    async def make(self) -> None:
        await super().make_usable()

    async def make_usable(self) -> None:
        return

    async def change(self) -> None:
        description = description_of(_subscription(LOCKS_S[1]), self._administration.requests.namespace)
        await self._administration.requests.entry("PUT", self.outlet, entry_with(description), UPDATE)

    async def drop(self) -> None:
        await self._administration.delete_subscription(self.name, self.subscription)

    async def lock_s(self) -> float:
        found = await self._administration.get_subscription(self.name, self.subscription)
        return found.settings.lock_duration_s or 0.0


class AdministeredRule(AdministeredTopic):
    """The only one that lets messages through to a subscription."""

    steps = ("create", "delete")
    left_without = FRAGMENT_COUNT
    rule = "everything"

    async def surround(self) -> None:
        await super().make()
        nothing = RuleDescription("nothing", FalseFilter())
        settings = _subscription(LOCKS_S[0])
        await self._administration.create_subscription(self.name, self.subscription, settings, nothing)

    async def make(self) -> None:
        rule = RuleDescription(self.rule, TrueFilter())
        await self._administration.create_rule(self.name, self.subscription, rule)

    async def make_usable(self) -> None:
        return

    async def drop(self) -> None:
        path = rule_path(self.name, self.subscription, self.rule)
        await self._administration.requests.entry("DELETE", path)

    async def lock_s(self) -> float:
        await self._administration.get_rule(self.name, self.subscription, self.rule)
        return LOCKS_S[0]

    async def check_without(self) -> None:
        """No fragment lets anything through."""
        before = await self.until_available()
        await self.fill()
        assert await self.until_available() == before


THINGS: tuple[type[Administered], ...] = (
    AdministeredQueue,
    AdministeredTopic,
    AdministeredSubscription,
    AdministeredRule,
)
CASES = [(thing, step) for step in ("create", "update", "delete") for thing in THINGS if step in thing.steps]


def _queue(lock_s: float) -> QueueSettings:
    return QueueSettings(partitioning=True, lock_duration_s=lock_s)


def _subscription(lock_s: float) -> SubscriptionSettings:
    return SubscriptionSettings(lock_duration_s=lock_s)
