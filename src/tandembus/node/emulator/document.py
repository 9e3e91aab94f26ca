"""Config.json as descriptions: every mistake in it is found before anything is created.

What the emulator takes is taken, and more: its limits on counts and times are not ours, and settings that it does not
have can be written beside its own. Its defaults are kept, which differ from the service's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar, cast

from tandembus.config import ConfigurationError
from tandembus.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    EntityStatus,
    Filter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    check_authorization_rules,
    validate_name,
    validate_rule_name,
    validate_subscription_name,
)
from tandembus.descriptions.rules import Values
from tandembus.errors import BusError, InvalidArgument
from tandembus.front_end.http.values import parse_iso_time, parse_time_span
from tandembus.limits import Limits
from tandembus.node.emulator.places import Place, read_json
from tandembus.rules import compile_rule
from tandembus.security.key_file import random_key
from tandembus.security.scopes import fold

MAX_TOLD: Final = 20
"""Mistakes shown at once."""
LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")

T = TypeVar("T")
D = TypeVar("D", bound=EntityDescription)
Reader = Callable[[Place], object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an entity has to be, and where that is said."""

    place: Place
    given: frozenset[str]
    """The fields that the file itself names: only those are brought about in an entity that is there already."""


@dataclass(frozen=True, slots=True)
class WantedQueue(Wanted):
    description: QueueDescription


@dataclass(frozen=True, slots=True)
class WantedRule:
    place: Place
    description: RuleDescription


@dataclass(frozen=True, slots=True)
class WantedSubscription(Wanted):
    description: SubscriptionDescription
    rules: tuple[WantedRule, ...]


@dataclass(frozen=True, slots=True)
class WantedTopic(Wanted):
    description: TopicDescription
    subscriptions: tuple[WantedSubscription, ...]


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    place: Place
    namespace_name: str
    policies: tuple[AuthorizationRule, ...]
    """Of the whole namespace, without keys."""
    queues: tuple[WantedQueue, ...]
    topics: tuple[WantedTopic, ...]


def _forward(place: Place) -> str | None:
    """An empty text means none."""
    return place.text() or None


def _finite_s(place: Place) -> float:
    duration_s = place.duration_s()
    if duration_s is None:
        raise place.fault("it cannot be for ever; write a duration such as PT1M")
    return duration_s


def _status(place: Place) -> EntityStatus:
    return EntityStatus(place.one_of(*[status.value for status in EntityStatus]))


def _policies(place: Place) -> tuple[AuthorizationRule, ...]:
    """Names and rights. Keys stand in no such file: they are made when a policy is."""
    found = []
    for item in place.items():
        parts = item.members(("KeyName", "Rights"), ("KeyName", "Rights"))
        rights = frozenset(right.one_of("Send", "Listen", "Manage") for right in parts["Rights"].items())
        found.append(AuthorizationRule(parts["KeyName"].text(), random_key(), random_key(), rights))
    return tuple(found)


_TIME_TO_LIVE: Final[tuple[str, Reader]] = ("default_message_time_to_live_s", Place.duration_s)
_OF_ALL: Final[Mapping[str, tuple[str, Reader]]] = {
    "Status": ("status", _status),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_s", Place.duration_s),
    "EnableBatchedOperations": ("enable_batched_operations", Place.boolean),
    "UserMetadata": ("user_metadata", Place.text),
}
_OF_QUEUES_AND_TOPICS: Final[Mapping[str, tuple[str, Reader]]] = {
    "DefaultMessageTimeToLive": _TIME_TO_LIVE,
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window_s", _finite_s),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", Place.boolean),
    "EnablePartitioning": ("enable_partitioning", Place.boolean),
    "EnableExpress": ("enable_express", Place.boolean),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", Place.whole_number),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", Place.whole_number),
    "AuthorizationRules": ("authorization_rules", _policies),
}
_OF_QUEUES_AND_SUBSCRIPTIONS: Final[Mapping[str, tuple[str, Reader]]] = {
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", Place.boolean),
    "LockDuration": ("lock_duration_s", _finite_s),
    "MaxDeliveryCount": ("max_delivery_count", Place.whole_number),
    "ForwardTo": ("forward_to", _forward),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _forward),
    "RequiresSession": ("requires_session", Place.boolean),
}
QUEUE_PROPERTIES: Final = {**_OF_QUEUES_AND_TOPICS, **_OF_QUEUES_AND_SUBSCRIPTIONS, **_OF_ALL}
TOPIC_PROPERTIES: Final = {
    **_OF_QUEUES_AND_TOPICS,
    "SupportOrdering": ("support_ordering", Place.boolean),
    "FilteringMessagesBeforePublishing": ("filtering_messages_before_publishing", Place.boolean),
    **_OF_ALL,
}
SUBSCRIPTION_PROPERTIES: Final = {
    "DefaultMessageTimeToLive": _TIME_TO_LIVE,
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_lettering_on_filter_evaluation_exceptions", Place.boolean),
    **_OF_QUEUES_AND_SUBSCRIPTIONS,
    **_OF_ALL,
}

_NUMBERS: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}
_HOUR_S: Final = 3600.0
_EMULATOR_DEFAULTS: Final[Mapping[str, object]] = {
    "DefaultMessageTimeToLive": _HOUR_S,
    "DuplicateDetectionHistoryTimeWindow": 20.0,
    "LockDuration": 60.0,
    "MaxDeliveryCount": 3,
}
_CORRELATED: Final = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


def read_emulator_config(path: Path, limits: Limits) -> EmulatorConfig:
    """Raises ConfigurationError with everything that is wrong, each with its place in the file."""
    return _Reading(limits).document(read_json(path))


class _Reading:
    """One pass over a document; mistakes are gathered, so that they can be mended together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._faults: list[ConfigurationError] = []

    def document(self, document: Place) -> EmulatorConfig:
        user = document.members(("UserConfig",), ("UserConfig",))["UserConfig"]
        parts = user.members(("Namespaces", "Logging"), ("Namespaces",))
        if "Logging" in parts:
            # Where to is decided by who starts the process; the key only has to be one of the emulator's.
            kinds = parts["Logging"].members(("Type",), ("Type",))
            kinds["Type"].one_of(*LOGGING_TYPES)
        namespaces = parts["Namespaces"].items()
        if len(namespaces) != 1:
            raise parts["Namespaces"].fault(f"there are {len(namespaces)} namespaces; exactly one is served")
        found = self._namespace(namespaces[0])
        if self._faults:
            told = [str(fault) for fault in self._faults[:MAX_TOLD]]
            if len(self._faults) > MAX_TOLD:
                told.append(f"... and {len(self._faults) - MAX_TOLD} more")
            raise ConfigurationError("\n".join(told))
        return found

    def _namespace(self, place: Place) -> EmulatorConfig:
        parts = place.members(("Name", "AuthorizationRules", "Queues", "Topics"), ("Name",))
        name = parts["Name"].text()
        queues = self._each(parts.get("Queues"), self._queue)
        topics = self._each(parts.get("Topics"), self._topic)
        self._check_names([*queues, *topics])
        policies = self._policies(parts.get("AuthorizationRules"))
        return EmulatorConfig(place, name, policies, tuple(queues), tuple(topics))

    def _policies(self, place: Place | None) -> tuple[AuthorizationRule, ...]:
        try:
            found = _policies(place) if place is not None else ()
            check_authorization_rules(found)
        except ConfigurationError as fault:
            self._faults.append(fault)
            return ()
        except BusError as error:
            assert place is not None
            self._faults.append(place.fault(str(error)))
        return found

    def _each(self, place: Place | None, read: Callable[[Place], T]) -> list[T]:
        found: list[T] = []
        for item in place.items() if place is not None and self._is_list(place) else []:
            try:
                found.append(read(item))
            except ConfigurationError as fault:
                self._faults.append(fault)
        return found

    def _is_list(self, place: Place) -> bool:
        try:
            place.items()
        except ConfigurationError as fault:
            self._faults.append(fault)
            return False
        return True

    # Entities.

    def _queue(self, place: Place) -> WantedQueue:
        parts = place.members(("Name", "Properties"), ("Name",))
        name = self._name(parts["Name"], lambda text: validate_name(text, self._limits))
        values = self._values(parts.get("Properties"), QUEUE_PROPERTIES)
        description = QueueDescription(name, **_fields(values, QUEUE_PROPERTIES))  # type: ignore[arg-type]
        checked = self._checked(description, place)
        return WantedQueue(place, _given(values, QUEUE_PROPERTIES), checked)

    def _topic(self, place: Place) -> WantedTopic:
        parts = place.members(("Name", "Properties", "Subscriptions"), ("Name",))
        name = self._name(parts["Name"], lambda text: validate_name(text, self._limits))
        values = self._values(parts.get("Properties"), TOPIC_PROPERTIES)
        description = TopicDescription(name, **_fields(values, TOPIC_PROPERTIES))  # type: ignore[arg-type]
        checked = self._checked(description, place)
        subscriptions = self._each(parts.get("Subscriptions"), lambda item: self._subscription(item, name))
        self._check_names(subscriptions)
        return WantedTopic(place, _given(values, TOPIC_PROPERTIES), checked, tuple(subscriptions))

    def _subscription(self, place: Place, topic: str) -> WantedSubscription:
        parts = place.members(("Name", "Properties", "Rules"), ("Name",))
        name = self._name(parts["Name"], validate_subscription_name)
        values = self._values(parts.get("Properties"), SUBSCRIPTION_PROPERTIES)
        fields = _fields(values, SUBSCRIPTION_PROPERTIES)
        description = SubscriptionDescription(topic, name, **fields)  # type: ignore[arg-type]
        checked = self._checked(description, place)
        rules = self._each(parts.get("Rules"), self._rule)
        self._check_names(rules)
        return WantedSubscription(place, _given(values, SUBSCRIPTION_PROPERTIES), checked, tuple(rules))

    def _name(self, place: Place, validate: Callable[[str], None]) -> str:
        name = place.text()
        try:
            validate(name)
        except BusError as error:
            raise place.fault(str(error)) from None
        return name

    def _values(self, properties: Place | None, table: Mapping[str, tuple[str, Reader]]) -> dict[str, object]:
        if properties is None:
            return {}
        found: dict[str, object] = {}
        for key, place in self._members(properties, table).items():
            try:
                found[key] = table[key][1](place)
            except ConfigurationError as fault:
                self._faults.append(fault)
        return found

    def _members(self, properties: Place, table: Mapping[str, tuple[str, Reader]]) -> dict[str, Place]:
        """Those that are known; of the others, each is a mistake of its own."""
        members = properties.all_members()
        self._faults += [part.unknown(key, table) for key, part in members.items() if key not in table]
        return {key: part for key, part in members.items() if key in table}

    def _checked(self, description: D, place: Place) -> D:
        """Within the namespace's limits, and something that this version can do. If not, that is a mistake, and what
        stands below it is looked at all the same."""
        try:
            return self._valid(description, place)
        except ConfigurationError as fault:
            self._faults.append(fault)
            return description

    def _valid(self, description: D, place: Place) -> D:
        if not isinstance(description, TopicDescription):
            self._check_forwards(description, place.member("Properties"))
        try:
            checked = cast(D, description.validated(self._limits))
        except BusError as error:
            raise place.blamed(str(error)).fault(str(error)) from None
        return checked

    def _check_forwards(self, description: QueueDescription | SubscriptionDescription, properties: Place) -> None:
        for key, target in (
            ("ForwardTo", description.forward_to),
            ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
        ):
            if target is not None:
                self._name(properties.member(key), lambda text: validate_name(text, self._limits))

    # Rules.

    def _rule(self, place: Place) -> WantedRule:
        parts = place.members(("Name", "Properties"), ("Name", "Properties"))
        name = self._name(parts["Name"], validate_rule_name)
        properties = parts["Properties"]
        known = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
        kinds = properties.members(known, ("FilterType",))
        kind = kinds["FilterType"].one_of("Correlation", "Sql") + "Filter"
        if kind not in kinds:
            raise properties.fault(f"FilterType is {kinds['FilterType'].text()}, so {kind!r} must be there; add it")
        sql = _expression(kinds[kind]) if kind == "SqlFilter" else None
        rule = RuleDescription(name, _correlation(kinds[kind]) if sql is None else SqlFilter(sql[0].text(), sql[1]))
        rule = self._checked_rule(rule, kinds[kind] if sql is None else sql[0])
        if "Action" in kinds:
            action, parameters = _expression(kinds["Action"])
            rule = self._checked_rule(replace(rule, action=SqlAction(action.text(), parameters)), action)
        return WantedRule(place, rule)

    def _checked_rule(self, rule: RuleDescription, place: Place) -> RuleDescription:
        """Compiled, to see whether it can be."""
        try:
            checked = rule.validated(self._limits)
            compile_rule(checked)
        except BusError as error:
            raise place.fault(str(error)) from None
        return checked

    def _check_names(self, wanted: Iterable[Wanted | WantedRule]) -> None:
        seen: dict[str, Place] = {}
        for one in wanted:
            name = one.place.member("Name")
            first = seen.setdefault(fold(name.text()), name)
            if first is not name:
                self._faults.append(name.fault(f"{name.text()!r} is the name of {first.path}, too; rename one"))


def _fields(values: Mapping[str, object], table: Mapping[str, tuple[str, Reader]]) -> dict[str, object]:
    """Of a description; where the file is silent the emulator's defaults hold."""
    defaults = {key: value for key, value in _EMULATOR_DEFAULTS.items() if key in table}
    return {table[key][0]: value for key, value in {**defaults, **values}.items()}


def _given(values: Mapping[str, object], table: Mapping[str, tuple[str, Reader]]) -> frozenset[str]:
    return frozenset(table[key][0] for key in values)


def _expression(place: Place) -> tuple[Place, Values]:
    parts = place.members(("SqlExpression", "Parameters"), ("SqlExpression",))
    return parts["SqlExpression"], _values(parts.get("Parameters"))


def _correlation(place: Place) -> Filter:
    parts = place.members((*_CORRELATED, "Properties"))
    fields = {_CORRELATED[key]: part.text() for key, part in parts.items() if key != "Properties"}
    return CorrelationFilter(**fields, properties=_values(parts.get("Properties")))


def _values(place: Place | None) -> Values:
    values = place.all_members() if place is not None else {}
    return tuple((key, _compared(value)) for key, value in values.items())


def _compared(place: Place) -> object:
    if isinstance(place.value, dict):
        return _typed(place)
    if not isinstance(place.value, (str, int, float, bool)):
        raise place.fault("only text, numbers, true and false can be compared with")
    return place.value


def _typed(place: Place) -> object:
    """A value that JSON has no word for, such as `{"Type": "dateTime", "Value": "2031-05-17T12:30:15Z"}`."""
    parts = place.members(("Type", "Value"), ("Type", "Value"))
    text = parts["Value"].text()
    kind = parts["Type"].one_of("dateTime", "duration", "double")
    if kind == "duration":
        try:
            return parse_time_span(text, "the value")
        except InvalidArgument as error:
            raise parts["Value"].fault(str(error)) from None
    value = parse_iso_time(text) if kind == "dateTime" else _NUMBERS.get(text)
    if value is None:
        raise parts["Value"].fault(f"{text[:64]!r} is not a {kind}")
    return value
