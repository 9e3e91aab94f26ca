"""One entity as clients see it: its description, its messages wherever they are, and the links attached to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from tandembus.descriptions import EntityKind, SubscriptionDescription, TopicDescription
from tandembus.errors import BusError, EntityDisabled, InvalidOperation
from tandembus.interconnect.requests import Counts, Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.limits import Limits
from tandembus.message import compared
from tandembus.namespace.entries import Entry
from tandembus.pair_view.watches import OutageMark
from tandembus.store.messaging_store import MAIN

EntityCounts = Counts
"""Sums over the entity's fragments."""


class AttachedLink(Protocol):
    """What a front end attaches to an entity, so that the entity's end is the link's end."""

    is_sender: bool

    @property
    def lane(self) -> int: ...

    def cut(self, error: BusError) -> None: ...

    def entity_changed(self) -> None: ...


class Entity:
    def __init__(
        self,
        entry: Entry,
        traffic: Traffic,
        requests: Requests,
        now: float,
        fragments: Sequence[tuple[Traffic, Requests]],
    ) -> None:
        self.entry = entry
        self.fragments = fragments
        """Each by itself, in the order of their index: to be looked at only."""
        self.traffic = traffic
        """Messages to it and from it: nothing in it waits."""
        self.requests = requests
        """What waits for an answer."""
        self.accessed_at = now
        """When clients last used it: what is idle is told by this."""
        self.found_at = now
        """When somebody last asked for it, be it only to count: it stays in memory for a while."""
        self.outage_mark = OutageMark()
        """Whether sends to it were refused, as far as links of this process know."""
        self._links: set[AttachedLink] = set()
        self._use_count = 0

    @property
    def name(self) -> str:
        """Its whole path, as it was written when it was created."""
        return self.entry.description.path

    @property
    def kind(self) -> EntityKind:
        return self.entry.kind

    @property
    def requires_session(self) -> bool:
        """Whether its messages are received session by session; a topic's are not received at all."""
        description = self.entry.description
        return not isinstance(description, TopicDescription) and description.requires_session

    def key_of(self, text: str) -> str:
        """A SessionId or PartitionKey as it is compared."""
        return compared(text, self.entry.ignores_key_case)

    @property
    def last_needed_at(self) -> float:
        return max(self.accessed_at, self.found_at)

    @property
    def links(self) -> frozenset[AttachedLink]:
        return frozenset(self._links)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While something that waits is being done with it, its fragment must not leave the memory."""
        self._use_count += 1
        try:
            yield
        finally:
            self._use_count -= 1

    def hold(self) -> Callable[[], None]:
        """The same for what goes on beyond a call: until the function that this returns is called."""
        use = ExitStack()
        use.enter_context(self.in_use())
        return use.close

    def check_can_send(self, lane: int = MAIN) -> None:
        """Raises InvalidOperation for what cannot be sent to, EntityDisabled for what must not be at the moment. By way
        of the transfer lane, messages for other entities can be sent via a subscription, too."""
        if self.kind is EntityKind.SUBSCRIPTION and lane == MAIN:
            raise InvalidOperation(
                f"The messaging entity '{self.name}' is a subscription: messages are sent to its topic."
            )
        if not self.entry.description.status.can_send:
            raise EntityDisabled(f"The messaging entity '{self.name}' is disabled for sending.")

    def check_can_receive(self, lane: int = MAIN) -> None:
        """Raises InvalidOperation for what cannot be received from, EntityDisabled for what must not be at the
        moment."""
        self.check_is_no_topic()
        description = self.entry.description
        assert not isinstance(description, TopicDescription)
        if lane == MAIN and description.forward_to is not None:
            raise InvalidOperation(
                f"The messaging entity '{self.name}' forwards its messages to '{description.forward_to}': "
                "they are received there."
            )
        if not description.status.can_receive:
            raise EntityDisabled(f"The messaging entity '{self.name}' is disabled for receiving.")

    def check_is_no_topic(self) -> None:
        """Raises InvalidOperation for a topic, whose messages are its subscriptions'."""
        if self.kind is EntityKind.TOPIC:
            raise InvalidOperation(
                f"The messaging entity '{self.name}' is a topic: messages are received from its subscriptions."
            )

    def is_limited(self) -> bool:
        """Whether any of its fragments is out."""
        return self.traffic.is_limited()

    def max_message_size_bytes(self, limits: Limits) -> int:
        description = self.entry.description
        if isinstance(description, SubscriptionDescription):
            return limits.max_message_size_bytes
        return description.max_message_size_bytes(limits)

    def attach(self, link: AttachedLink, now: float) -> None:
        self._links.add(link)
        self.accessed_at = now

    def detach(self, link: AttachedLink, now: float) -> None:
        self._links.discard(link)
        self.accessed_at = now

    def changed(self, entry: Entry) -> None:
        """A new description for the same life: links that it no longer allows are cut."""
        self.entry = entry
        for link in self.links:
            try:
                self._check_allows(link)
            except BusError as error:
                link.cut(error)
            else:
                link.entity_changed()

    def _check_allows(self, link: AttachedLink) -> None:
        if link.is_sender:
            self.check_can_send(link.lane)
        else:
            self.check_can_receive(link.lane)

    def ended(self, error: BusError) -> None:
        for link in self.links:
            link.cut(error)

    def is_unused(self) -> bool:
        """Nobody is attached, and nothing is being done with it: its memory can go until somebody comes."""
        return not self._links and self._use_count == 0
