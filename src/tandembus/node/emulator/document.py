"""Config.json as descriptions: every mistake in it is found before anything is created.

What the emulator takes is taken, and more: its limits on counts and times are not ours, and settings that it does not
have can be written beside its own. Its defaults are kept, which differ from the service's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

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
from tandembus.descriptions.rules import CORRELATED, Values
from tandembus.descriptions.settings import NOT_THE_EMULATORS, Kind, Setting, defaults_of, settings_of
from tandembus.descriptions.values import VALUE_KINDS, value_of_text
from tandembus.errors import BusError, InvalidArgument
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """An entity that the file describes, and its place in the file."""

    place: Place
    given: frozenset[str]
    """The fields that the file itself names: only those are changed in an entity that is there already."""
    description: EntityDescription


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


def _policies(place: Place) -> tuple[AuthorizationRule, ...]:
    """Names and rights. Keys stand in no such file: they are made when a policy is."""
    found = []
    for item in place.items():
        parts = item.members(("KeyName", "Rights"), ("KeyName", "Rights"))
        rights = frozenset(right.one_of("Send", "Listen", "Manage") for right in parts["Rights"].items())
        found.append(AuthorizationRule(parts["KeyName"].text(), random_key(), random_key(), rights))
    return tuple(found)


def keys_of(entity: type[EntityDescription]) -> dict[str, Setting]:
    """The settings of this class that Config.json can have, by their keys."""
    return {one.element: one for one in settings_of(entity) if one.label or one.kind is Kind.POLICIES}


def _read_setting(setting: Setting, place: Place, is_nullable: bool) -> object:
    match setting.kind:
        case Kind.BOOLEAN:
            return place.boolean()
        case Kind.INTEGER | Kind.SIZE:
            return place.whole_number()
        case Kind.DURATION:
            duration_s = place.duration_s()
            if duration_s is None and not is_nullable:
                raise place.fault("it cannot be for ever; write a duration such as PT1M")
            return duration_s
        case Kind.STATUS:
            return EntityStatus(place.one_of(*[status.value for status in EntityStatus]))
        case Kind.POLICIES:
            return _policies(place)
        case Kind.TARGET:
            return place.text() or None
        case Kind.TEXT:
            return place.text()


def read_emulator_config(path: Path, limits: Limits) -> EmulatorConfig:
    """Raises ConfigurationError with everything that is wrong, each with its place in the file."""
    return _Reading(limits).document(read_json(path))


class _Reading:
    """One pass over a document. All mistakes are collected, so that they can be fixed together."""

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
        values, given = self._values(parts.get("Properties"), QueueDescription)
        return WantedQueue(place, given, self._checked(QueueDescription(name, **values), place))

    def _topic(self, place: Place) -> WantedTopic:
        parts = place.members(("Name", "Properties", "Subscriptions"), ("Name",))
        name = self._name(parts["Name"], lambda text: validate_name(text, self._limits))
        values, given = self._values(parts.get("Properties"), TopicDescription)
        checked = self._checked(TopicDescription(name, **values), place)
        subscriptions = self._each(parts.get("Subscriptions"), lambda item: self._subscription(item, name))
        self._check_names(subscriptions)
        return WantedTopic(place, given, checked, tuple(subscriptions))

    def _subscription(self, place: Place, topic: str) -> WantedSubscription:
        parts = place.members(("Name", "Properties", "Rules"), ("Name",))
        name = self._name(parts["Name"], validate_subscription_name)
        values, given = self._values(parts.get("Properties"), SubscriptionDescription)
        checked = self._checked(SubscriptionDescription(topic, name, **values), place)
        rules = self._each(parts.get("Rules"), self._rule)
        self._check_names(rules)
        return WantedSubscription(place, given, checked, tuple(rules))

    def _name(self, place: Place, validate: Callable[[str], None]) -> str:
        name = place.text()
        try:
            validate(name)
        except BusError as error:
            raise place.fault(str(error)) from None
        return name

    def _values(
        self, properties: Place | None, entity: type[EntityDescription]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """The settings of an entity, and which of them the file names: the others have the emulator's defaults.

        Each key that is not known is a mistake of its own.
        """
        known, defaults = keys_of(entity), defaults_of(entity)
        found: dict[str, Any] = {}
        for key, place in properties.all_members().items() if properties is not None else ():
            try:
                if key not in known:
                    raise place.unknown(key, known)
                setting = known[key]
                found[setting.name] = _read_setting(setting, place, defaults[setting.name] is None)
            except ConfigurationError as fault:
                self._faults.append(fault)
        emulators = {one.name: one.emulator_default for one in known.values()}
        absent = {name: value for name, value in emulators.items() if value is not NOT_THE_EMULATORS}
        return {**absent, **found}, frozenset(found)

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
        """Compiles the rule, to find mistakes in its expressions."""
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


def _expression(place: Place) -> tuple[Place, Values]:
    parts = place.members(("SqlExpression", "Parameters"), ("SqlExpression",))
    return parts["SqlExpression"], _values(parts.get("Parameters"))


def _correlation(place: Place) -> Filter:
    parts = place.members((*CORRELATED, "Properties"))
    fields = {CORRELATED[key]: part.text() for key, part in parts.items() if key != "Properties"}
    return CorrelationFilter(**fields, properties=_values(parts.get("Properties")))


def _values(place: Place | None) -> Values:
    values = place.all_members() if place is not None else {}
    return tuple((key, _compared(value)) for key, value in values.items())


def _compared(place: Place) -> object:
    """JSON's own types, or a value that JSON has no word for: `{"Type": "duration", "Value": "PT1M"}`."""
    if isinstance(place.value, dict):
        parts = place.members(("Type", "Value"), ("Type", "Value"))
        text, kind = parts["Value"].text(), parts["Type"].one_of(*VALUE_KINDS)
        try:
            return value_of_text(kind, text, "the value")
        except InvalidArgument as error:
            raise parts["Value"].fault(str(error)) from None
    if not isinstance(place.value, (str, int, float, bool)):
        raise place.fault("only text, numbers, true and false can be compared with")
    return place.value
