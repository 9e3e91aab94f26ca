"""Administration over a control connection: a front end asks, the process that has the catalog does it and answers.

Descriptions, rules and policies travel as the records that the catalog keeps of them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    RuleDescription,
    description_of,
    rule_from_record,
    rule_to_record,
    to_record,
)
from tandembus.errors import MalformedData, NotSupported
from tandembus.namespace import catalog_records as records
from tandembus.namespace.administration_port import AdministrationPort
from tandembus.namespace.entries import Entry

ADMINISTER: Final = "administer"
ADMINISTER_TIMEOUT_S: Final = 60.0
_RECORDS: Final = {
    EntityKind.QUEUE: records.QUEUE,
    EntityKind.TOPIC: records.TOPIC,
    EntityKind.SUBSCRIPTION: records.SUBSCRIPTION,
}

Ask = Callable[[str, object, float], Awaitable[object]]


@final
class RemoteAdministration:
    """Implements `AdministrationPort` in a front end."""

    def __init__(self, ask: Ask) -> None:
        self._ask_supervisor = ask

    async def create(self, description: EntityDescription, default_rule: RuleDescription | None = None) -> Entry:
        rule = None if default_rule is None else rule_to_record(default_rule)
        return _entry(description, await self._ask("create", *_sent(description), rule))

    async def update(self, description: EntityDescription) -> Entry:
        return _entry(description, await self._ask("update", *_sent(description)))

    async def delete(self, description: EntityDescription) -> None:
        await self._ask("delete", *_sent(description))

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
            "create": self._create,
            "update": self._update,
            "delete": self._delete,
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

    async def _create(self, kind: str, record: Any, rule: Any) -> object:
        default_rule = None if rule is None else rule_from_record(rule)
        made = await self._administration.create(description_of(EntityKind(kind), record), default_rule)
        return records.entry_document(made)

    async def _update(self, kind: str, record: Any) -> object:
        return records.entry_document(await self._administration.update(description_of(EntityKind(kind), record)))

    async def _delete(self, kind: str, record: Any) -> None:
        await self._administration.delete(description_of(EntityKind(kind), record))

    async def _create_rule(self, topic: str, subscription: str, rule: Any) -> object:
        created = await self._administration.create_rule(topic, subscription, rule_from_record(rule))
        return rule_to_record(created)

    async def _update_rule(self, topic: str, subscription: str, rule: Any) -> object:
        changed = await self._administration.update_rule(topic, subscription, rule_from_record(rule))
        return rule_to_record(changed)

    async def _put_policy(self, document: Any) -> None:
        await self._administration.put_policy(records.policy_of(document))


def _sent(description: EntityDescription) -> tuple[str, object]:
    return description.kind.value, to_record(description)


def _entry(description: EntityDescription, document: Any) -> Entry:
    return records.ENTRIES[_RECORDS[description.kind]](document)


def _asked(value: object) -> tuple[str, list[Any]]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedData("a request to administration without its parts")
    operation, text = value
    arguments = json.loads(text) if isinstance(text, str) else None
    if not isinstance(operation, str) or not isinstance(arguments, list):
        raise MalformedData("a request to administration without its parts")
    return operation, arguments
