"""Administration over HTTP: create, look at, change, list and delete queues, topics, subscriptions and rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Final
from xml.etree.ElementTree import Element

from tandembus.client.addresses import rule_path, subscription_path
from tandembus.client.atom import entry_with
from tandembus.client.atom_requests import AtomRequests
from tandembus.client.entities import (
    EntityInfo,
    QueueSettings,
    S,
    Settings,
    SubscriptionSettings,
    TopicSettings,
    changed,
    description_of,
    entity_of,
    is_queue,
    is_topic,
)
from tandembus.client.errors import OtherKind
from tandembus.client.rules import rule_element, rule_of
from tandembus.clock import Clock
from tandembus.descriptions import RuleDescription

NO_HEADERS: Final[Mapping[str, str]] = {}
NAMESPACE_INFO: Final = "$namespaceinfo"
UPDATE: Final = {"If-Match": "*"}
FORWARD_TOKEN: Final = "ServiceBusSupplementaryAuthorization"
DEAD_LETTER_FORWARD_TOKEN: Final = "ServiceBusDlqSupplementaryAuthorization"


class Administration:
    """The entities of one namespace. Use it as `async with Administration(connection_string) as administration`.

    Creating what is there raises `EntityAlreadyExists`; everything else about what is not there, `EntityNotFound`; its
    child `OtherKind` where a topic was asked for and a queue is there, or the reverse.
    An update changes what it names and leaves the rest; an empty text removes a forwarding or the metadata.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        ca_path: str | None = None,
        clock: Clock | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.requests: Final = AtomRequests(connection_string, ca_path=ca_path, clock=clock, timeout_s=timeout_s)

    async def __aenter__(self) -> Administration:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.requests.close()

    async def namespace_name(self) -> str | None:
        """The namespace's own name, whatever its address; None where the service does not say. Needs Manage."""
        entry = await self.requests.entry("GET", NAMESPACE_INFO)
        return next((each.text for each in entry.iter() if each.tag.rpartition("}")[2] == "Name" and each.text), None)

    async def get_entity(self, name: str) -> EntityInfo[QueueSettings] | EntityInfo[TopicSettings]:
        """The queue or topic of this name, whichever it is."""
        entry = await self.requests.entry("GET", name)
        return entity_of(entry, TopicSettings) if is_topic(entry) else entity_of(entry, QueueSettings)

    async def create_queue(self, name: str, settings: QueueSettings | None = None) -> EntityInfo[QueueSettings]:
        return entity_of(await self._put(name, settings or QueueSettings()), QueueSettings)

    async def get_queue(self, name: str) -> EntityInfo[QueueSettings]:
        return entity_of(await self._found(name, is_wanted_topic=False), QueueSettings)

    async def update_queue(self, name: str, changes: QueueSettings) -> EntityInfo[QueueSettings]:
        return await self._update(await self.get_queue(name), name, changes)

    async def delete_queue(self, name: str) -> None:
        await self._found(name, is_wanted_topic=False)
        await self.requests.entry("DELETE", name)

    async def queues(self) -> AsyncIterator[EntityInfo[QueueSettings]]:
        """All queues, by name."""
        async for entry in self.requests.entries("$Resources/queues"):
            yield entity_of(entry, QueueSettings)

    async def create_topic(self, name: str, settings: TopicSettings | None = None) -> EntityInfo[TopicSettings]:
        return entity_of(await self._put(name, settings or TopicSettings()), TopicSettings)

    async def get_topic(self, name: str) -> EntityInfo[TopicSettings]:
        return entity_of(await self._found(name, is_wanted_topic=True), TopicSettings)

    async def update_topic(self, name: str, changes: TopicSettings) -> EntityInfo[TopicSettings]:
        return await self._update(await self.get_topic(name), name, changes)

    async def delete_topic(self, name: str) -> None:
        """With all its subscriptions and their messages."""
        await self._found(name, is_wanted_topic=True)
        await self.requests.entry("DELETE", name)

    async def topics(self) -> AsyncIterator[EntityInfo[TopicSettings]]:
        """All topics, by name."""
        async for entry in self.requests.entries("$Resources/topics"):
            yield entity_of(entry, TopicSettings)

    async def create_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings | None = None,
        default_rule: RuleDescription | None = None,
    ) -> EntityInfo[SubscriptionSettings]:
        """Its first rule is `default_rule`, or one that takes every message."""
        chosen = settings or SubscriptionSettings()
        entry = await self._put(subscription_path(topic, name), chosen, NO_HEADERS, default_rule)
        return entity_of(entry, SubscriptionSettings)

    async def get_subscription(self, topic: str, name: str) -> EntityInfo[SubscriptionSettings]:
        return entity_of(await self.requests.entry("GET", subscription_path(topic, name)), SubscriptionSettings)

    async def update_subscription(
        self, topic: str, name: str, changes: SubscriptionSettings
    ) -> EntityInfo[SubscriptionSettings]:
        present = await self.get_subscription(topic, name)
        return await self._update(present, subscription_path(topic, name), changes)

    async def delete_subscription(self, topic: str, name: str) -> None:
        await self.requests.entry("DELETE", subscription_path(topic, name))

    async def subscriptions(self, topic: str) -> AsyncIterator[EntityInfo[SubscriptionSettings]]:
        """All subscriptions of a topic, by name."""
        async for entry in self.requests.entries(f"{topic}/Subscriptions"):
            yield entity_of(entry, SubscriptionSettings)

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """`InvalidArgument` with the reason if its filter or action is not understood."""
        return await self._put_rule(topic, subscription, rule, NO_HEADERS)

    async def get_rule(self, topic: str, subscription: str, name: str) -> RuleDescription:
        return rule_of(await self.requests.entry("GET", rule_path(topic, subscription, name)))

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Put this in the place of the rule of the same name."""
        return await self._put_rule(topic, subscription, rule, UPDATE)

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        await self.requests.entry("DELETE", rule_path(topic, subscription, name))

    async def rules(self, topic: str, subscription: str) -> AsyncIterator[RuleDescription]:
        """All rules of a subscription, by name."""
        async for entry in self.requests.entries(f"{subscription_path(topic, subscription)}/Rules"):
            yield rule_of(entry)

    async def _found(self, name: str, is_wanted_topic: bool) -> Element:
        """Queues and topics share their names and addresses, so only the answer tells which of them it is: raises
        `OtherKind`. What is deleted is looked at first, since the service would delete either."""
        entry = await self.requests.entry("GET", name)
        if is_topic(entry) and not is_wanted_topic:
            raise OtherKind(name, "topic", "queue")
        if is_queue(entry) and is_wanted_topic:
            raise OtherKind(name, "queue", "topic")
        return entry

    async def _put(
        self,
        path: str,
        settings: Settings,
        headers: Mapping[str, str] = NO_HEADERS,
        default_rule: RuleDescription | None = None,
    ) -> Element:
        description = description_of(settings, self.requests.namespace, default_rule)
        sent = {**headers, **self._forward_tokens(settings)}
        return await self.requests.entry("PUT", path, entry_with(description), sent)

    async def _update(self, present: EntityInfo[S], path: str, changes: S) -> EntityInfo[S]:
        settings = changed(present.settings, changes)
        return entity_of(await self._put(path, settings, UPDATE), type(settings))

    async def _put_rule(
        self, topic: str, subscription: str, rule: RuleDescription, headers: Mapping[str, str]
    ) -> RuleDescription:
        path = rule_path(topic, subscription, rule.name)
        return rule_of(await self.requests.entry("PUT", path, entry_with(rule_element(rule)), headers))

    def _forward_tokens(self, settings: Settings) -> dict[str, str]:
        """Who forwards must be allowed to send there: a token for each target goes along."""
        targets = {
            FORWARD_TOKEN: getattr(settings, "forward_to", None),
            DEAD_LETTER_FORWARD_TOKEN: getattr(settings, "forward_dead_letters_to", None),
        }
        return {
            header: self.requests.token(f"{self.requests.base}/{target}")
            for header, target in targets.items()
            if target
        }
