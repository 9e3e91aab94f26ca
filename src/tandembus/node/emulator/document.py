"""Config.json as descriptions: every mistake in it is found before anything is created.

What the emulator takes is taken, and more: its limits on counts and times are not ours. Its defaults are kept, which
differ from the service's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar, cast

from tandembus.config import ConfigurationError
from tandembus.descriptions import (
    CorrelationFilter,
    EntityDescription,
    Filter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    validate_name,
    validate_rule_name,
    validate_subscription_name,
)
from tandembus.errors import BusError
from tandembus.limits import Limits
from tandembus.node.emulator.places import Place, read_json
from tandembus.rules import compile_rule
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


_TIME_TO_LIVE: Final[tuple[str, Reader]] = ("default_message_time_to_live_s", Place.duration_s)
_OF_QUEUES_AND_TOPICS: Final[Mapping[str, tuple[str, Reader]]] = {
    "DefaultMessageTimeToLive": _TIME_TO_LIVE,
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window_s", _finite_s),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", Place.boolean),
    "EnablePartitioning": ("enable_partitioning", Place.boolean),
}
_OF_QUEUES_AND_SUBSCRIPTIONS: Final[Mapping[str, tuple[str, Reader]]] = {
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", Place.boolean),
    "LockDuration": ("lock_duration_s", _finite_s),
    "MaxDeliveryCount": ("max_delivery_count", Place.whole_number),
    "ForwardTo": ("forward_to", _forward),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _forward),
    "RequiresSession": ("requires_session", Place.boolean),
}
QUEUE_PROPERTIES: Final = {**_OF_QUEUES_AND_TOPICS, **_OF_QUEUES_AND_SUBSCRIPTIONS}
TOPIC_PROPERTIES: Final = _OF_QUEUES_AND_TOPICS
SUBSCRIPTION_PROPERTIES: Final = {"DefaultMessageTimeToLive": _TIME_TO_LIVE, **_OF_QUEUES_AND_SUBSCRIPTIONS}

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
        parts = place.members(("Name", "Queues", "Topics"), ("Name",))
        name = parts["Name"].text()
        queues = self._each(parts.get("Queues"), self._queue)
        topics = self._each(parts.get("Topics"), self._topic)
        self._check_names([*queues, *topics])
        return EmulatorConfig(place, name, tuple(queues), tuple(topics))

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
        itself = description.name if isinstance(description, QueueDescription) else description.topic_name
        for key, target in (
            ("ForwardTo", description.forward_to),
            ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
        ):
            if target is not None:
                self._name(properties.member(key), lambda text: validate_name(text, self._limits))
                if fold(target) == fold(itself):
                    raise properties.member(key).fault(f"{description.path!r} cannot forward to itself")

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
        rule = RuleDescription(name, _correlation(kinds[kind]) if sql is None else SqlFilter(sql.text()))
        rule = self._checked_rule(rule, kinds[kind] if sql is None else sql)
        if "Action" in kinds:
            action = _expression(kinds["Action"])
            rule = self._checked_rule(replace(rule, action=SqlAction(action.text())), action)
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


def _expression(place: Place) -> Place:
    return place.members(("SqlExpression",), ("SqlExpression",))["SqlExpression"]


def _correlation(place: Place) -> Filter:
    parts = place.members((*_CORRELATED, "Properties"))
    fields = {_CORRELATED[key]: part.text() for key, part in parts.items() if key != "Properties"}
    values = parts["Properties"].all_members() if "Properties" in parts else {}
    return CorrelationFilter(**fields, properties=tuple((key, _compared(value)) for key, value in values.items()))


def _compared(place: Place) -> object:
    if not isinstance(place.value, (str, int, float, bool)):
        raise place.fault("only text, numbers, true and false can be compared with")
    return place.value
