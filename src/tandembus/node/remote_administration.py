"""Administration over a control connection: a front end asks, the process that has the catalog does it and answers.

Descriptions, rules and policies travel as the records that the catalog keeps of them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    from_record,
    rule_from_record,
    rule_to_record,
    subscription_from_record,
    to_record,
    topic_from_record,
)
from tandembus.errors import MalformedData, NotSupported
from tandembus.namespace import catalog_records as records
from tandembus.namespace.administration_port import AdministrationPort
from tandembus.namespace.entries import QueueEntry, SubscriptionEntry, TopicEntry

ADMINISTER: Final = "administer"
ADMINISTER_TIMEOUT_S: Final = 60.0

Ask = Callable[[str, object, float], Awaitable[object]]


@final
class RemoteAdministration:
    """Implements `AdministrationPort` in a front end."""

    def __init__(self, ask: Ask) -> None:
        self._ask_supervisor = ask

    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        return records.queue_entry(await self._ask("create_queue", to_record(description)))

    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        return records.queue_entry(await self._ask("update_queue", to_record(description)))

    async def delete_queue(self, name: str) -> None:
        await self._ask("delete_queue", name)

    async def create_topic(self, description: TopicDescription) -> TopicEntry:
        return records.topic_entry(await self._ask("create_topic", to_record(description)))

    async def update_topic(self, description: TopicDescription) -> TopicEntry:
        return records.topic_entry(await self._ask("update_topic", to_record(description)))

    async def delete_topic(self, name: str) -> None:
        await self._ask("delete_topic", name)

    async def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription | None = None
    ) -> SubscriptionEntry:
        rule = None if default_rule is None else rule_to_record(default_rule)
        return records.subscription_entry(await self._ask("create_subscription", to_record(description), rule))

    async def update_subscription(self, description: SubscriptionDescription) -> SubscriptionEntry:
        return records.subscription_entry(await self._ask("update_subscription", to_record(description)))

    async def delete_subscription(self, topic: str, name: str) -> None:
        await self._ask("delete_subscription", topic, name)

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        return rule_from_record(await self._ask("create_rule", topic, subscription, rule_to_record(rule)))

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        return rule_from_record(await self._ask("update_rule", topic, subscription, rule_to_record(rule)))

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        await self._ask("delete_rule", topic, subscription, name)

    async def put_policy(self, policy: AuthorizationRule) -> None:
        await self._ask("put_policy", records.policy_document(policy))

    async def remove_policy(self, name: str) -> None:
        await self._ask("remove_policy", name)

    async def record_accesses(self, times: Mapping[str, float]) -> None:
        await self._ask("record_accesses", dict(times))

    async def _ask(self, operation: str, *arguments: object) -> Any:
        """Raises what the other process raised; OutcomeUnknown where nobody can say."""
        asked = [operation, json.dumps(arguments)]
        answer = await self._ask_supervisor(ADMINISTER, asked, ADMINISTER_TIMEOUT_S)
        if not isinstance(answer, str):
            raise MalformedData("an answer of administration that is none")
        return json.loads(answer)


@final
class AdministrationDesk:
    """The other end: carries out what front ends ask for."""

    def __init__(self, administration: AdministrationPort) -> None:
        self._administration = administration
        self._operations: Mapping[str, Callable[..., Awaitable[object]]] = {
            "create_queue": self._create_queue,
            "update_queue": self._update_queue,
            "delete_queue": administration.delete_queue,
            "create_topic": self._create_topic,
            "update_topic": self._update_topic,
            "delete_topic": administration.delete_topic,
            "create_subscription": self._create_subscription,
            "update_subscription": self._update_subscription,
            "delete_subscription": administration.delete_subscription,
            "create_rule": self._create_rule,
            "update_rule": self._update_rule,
            "delete_rule": administration.delete_rule,
            "put_policy": self._put_policy,
            "remove_policy": administration.remove_policy,
            "record_accesses": administration.record_accesses,
        }

    async def answer(self, value: object) -> str:
        operation, arguments = _asked(value)
        act = self._operations.get(operation)
        if act is None:
            raise NotSupported(f"This version does not know how to '{operation}'.")
        return json.dumps(await act(*arguments))

    async def _create_queue(self, record: Any) -> object:
        return records.entry_document(await self._administration.create_queue(from_record(record)))

    async def _update_queue(self, record: Any) -> object:
        return records.entry_document(await self._administration.update_queue(from_record(record)))

    async def _create_topic(self, record: Any) -> object:
        return records.entry_document(await self._administration.create_topic(topic_from_record(record)))

    async def _update_topic(self, record: Any) -> object:
        return records.entry_document(await self._administration.update_topic(topic_from_record(record)))

    async def _create_subscription(self, record: Any, rule: Any) -> object:
        default_rule = None if rule is None else rule_from_record(rule)
        description = subscription_from_record(record)
        return records.entry_document(await self._administration.create_subscription(description, default_rule))

    async def _update_subscription(self, record: Any) -> object:
        return records.entry_document(await self._administration.update_subscription(subscription_from_record(record)))

    async def _create_rule(self, topic: str, subscription: str, rule: Any) -> object:
        created = await self._administration.create_rule(topic, subscription, rule_from_record(rule))
        return rule_to_record(created)

    async def _update_rule(self, topic: str, subscription: str, rule: Any) -> object:
        changed = await self._administration.update_rule(topic, subscription, rule_from_record(rule))
        return rule_to_record(changed)

    async def _put_policy(self, document: Any) -> None:
        await self._administration.put_policy(records.policy_of(document))


def _asked(value: object) -> tuple[str, list[Any]]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedData("a request to administration without its parts")
    operation, text = value
    arguments = json.loads(text) if isinstance(text, str) else None
    if not isinstance(operation, str) or not isinstance(arguments, list):
        raise MalformedData("a request to administration without its parts")
    return operation, arguments
