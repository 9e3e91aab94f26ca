"""Entities as answers show them in XML, with the counts and times that the namespace adds, and as requests describe
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tandembus.descriptions import (
    EntityDescription,
    EntityKind,
    RuleDescription,
    SubscriptionDescription,
    shown_size_in_megabytes,
)
from tandembus.descriptions.atom import (
    KINDS,
    ORDERS,
    ROOTS,
    children_of,
    content_of,
    described,
    element,
    has_element,
    read_settings,
    write_setting,
)
from tandembus.descriptions.atom_rules import read_description
from tandembus.descriptions.durations import format_time
from tandembus.descriptions.settings import BY_ELEMENT
from tandembus.descriptions.xml_reader import Element
from tandembus.errors import BusError, InvalidArgument, MalformedData
from tandembus.front_end.http.atom import COUNTS, Origin
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts

UNKNOWN: Final = "-1"
"""A count that nobody knows, as the SDKs can read it: they take only numbers."""


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity as an answer shows it: its description, and its state at the moment."""

    description: EntityDescription
    counts: EntityCounts | None
    """None while no fragment of it can be asked."""
    created_at: float
    updated_at: float
    accessed_at: float
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0
    is_limited: bool = False
    """Whether a part of it is out of reach: its messages are missing in the counts."""
    outage: BusError | None = None
    """Why all of it is."""


def write_entity(view: EntityView, origin: Origin, limits: Limits) -> str:
    """The description's element, with all elements in the service's order that the request's API version has."""
    kind = view.description.kind
    names = [name for name in ORDERS[kind] if has_element(name, origin.api_version)]
    return described(ROOTS[kind], [_write(name, view, origin, limits) for name in names])


def _write(name: str, view: EntityView, origin: Origin, limits: Limits) -> str:
    state = _STATE.get(name)
    if state is not None:
        return state(view)
    setting = BY_ELEMENT.get(name)
    if setting is None:
        return ""
    value = getattr(view.description, setting.name, False)
    if not isinstance(view.description, SubscriptionDescription):
        if setting.name == "max_size_in_megabytes":
            value = shown_size_in_megabytes(view.description)
        elif setting.name == "max_message_size_in_kilobytes" and value is None:
            value = limits.max_message_size_bytes // 1024
    return write_setting(setting, value, origin.host)


def _message_count(view: EntityView) -> str:
    counts = view.counts
    if counts is None:
        return element("MessageCount", UNKNOWN)
    total = counts.active + counts.dead_letter + counts.scheduled + counts.transfer
    return element("MessageCount", str(total))


def _size(view: EntityView) -> str:
    return element("SizeInBytes", UNKNOWN if view.counts is None else str(view.counts.size_bytes))


def _availability(view: EntityView) -> str:
    return element("EntityAvailabilityStatus", "Limited" if view.is_limited else "Available")


_STATE: Final[Mapping[str, Callable[[EntityView], str]]] = {
    "SizeInBytes": _size,
    "MessageCount": _message_count,
    "CreatedAt": lambda view: element("CreatedAt", format_time(view.created_at)),
    "UpdatedAt": lambda view: element("UpdatedAt", format_time(view.updated_at)),
    "AccessedAt": lambda view: element("AccessedAt", format_time(view.accessed_at)),
    "CountDetails": lambda view: write_counts(view.counts),
    "SubscriptionCount": lambda view: element("SubscriptionCount", str(view.subscription_count)),
    "SqlFilterCount": lambda view: element("SqlFilterCount", str(view.sql_filter_count)),
    "CorrelationFilterCount": lambda view: element("CorrelationFilterCount", str(view.correlation_filter_count)),
    "EntityAvailabilityStatus": _availability,
    "EnableSubscriptionPartitioning": lambda _view: element("EnableSubscriptionPartitioning", "false"),
}
"""What only answers say; clients that send it back change nothing by it."""

_COUNTS: Final[Mapping[str, Callable[[EntityCounts], int]]] = {
    "ActiveMessageCount": lambda counts: counts.active,
    "DeadLetterMessageCount": lambda counts: counts.dead_letter,
    "ScheduledMessageCount": lambda counts: counts.scheduled,
    "TransferMessageCount": lambda counts: counts.transfer,
    "TransferDeadLetterMessageCount": lambda counts: counts.transfer_dead_letter,
}


def write_counts(counts: EntityCounts | None) -> str:
    """CountDetails.

    Its prefix must be declared right here and nothing else may be: the JS SDK looks no further.
    """
    figures = {name: UNKNOWN if counts is None else str(figure(counts)) for name, figure in _COUNTS.items()}
    children = "".join([element(f"d2p1:{name}", text) for name, text in figures.items()])
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{children}</CountDetails>'


@dataclass(frozen=True, slots=True)
class EntityRequest:
    """The entity that a create or update request describes."""

    kind: EntityKind
    settings: Mapping[str, Any]
    """Those that the request names; the others get the service's defaults."""
    default_rule: RuleDescription | None = None
    """A new subscription's first rule, in place of the one that takes everything."""

    def settings_beside(self, known: EntityDescription, api_version: str) -> dict[str, Any]:
        """The settings of an update. What a request cannot speak of stays as it is: elements that its API version does
        not have, and policies, where the client does not know of them: it must not lock out those who do."""
        kept = [name for name, setting in BY_ELEMENT.items() if not has_element(name, api_version)]
        names = ["authorization_rules", *[BY_ELEMENT[name].name for name in kept]]
        return {**{name: getattr(known, name) for name in names if hasattr(known, name)}, **self.settings}


def read_entity(root: Element) -> EntityRequest:
    description = content_of(root)
    kind = KINDS.get(description.name)
    if kind is None:
        raise MalformedData(f"The description '{description.name[:64]}' is not one of an entity.")
    fields = children_of(description)
    settings = read_settings(kind, fields)
    if kind is EntityKind.TOPIC and settings.pop("is_anonymous_accessible", False):
        raise InvalidArgument("IsAnonymousAccessible cannot be true: every access needs a claim.")
    rule = fields.get("DefaultRuleDescription") if kind is EntityKind.SUBSCRIPTION else None
    return EntityRequest(kind, settings, read_description(rule) if rule is not None else None)
