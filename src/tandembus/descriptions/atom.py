"""Descriptions of queues, topics and subscriptions in Atom XML, both ways; `atom_rules` has those of rules.

Names and order of the elements are the service's. Reading takes elements under any prefix and in any order, and skips
those that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from tandembus.descriptions.access import AuthorizationRule
from tandembus.descriptions.durations import (
    format_boolean,
    format_duration,
    format_time,
    parse_boolean,
    parse_duration,
    parse_integer,
)
from tandembus.descriptions.entities import CLASSES, EntityKind
from tandembus.descriptions.settings import BY_ELEMENT, EntityStatus, Kind, Setting, settings_of
from tandembus.descriptions.xml_reader import Element, attribute_key
from tandembus.errors import InvalidArgument, MalformedData, NotSupported

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"

ROOTS: Final[Mapping[EntityKind, str]] = {
    EntityKind.QUEUE: "QueueDescription",
    EntityKind.TOPIC: "TopicDescription",
    EntityKind.SUBSCRIPTION: "SubscriptionDescription",
}
KINDS: Final = {name: kind for kind, name in ROOTS.items()}
_ORDERS: Final = {
    EntityKind.QUEUE: """
        LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
        SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
        SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableExpress
        ForwardTo UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes
    """,
    EntityKind.TOPIC: """
        DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
        EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules
        Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
        CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
        EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes
    """,
    EntityKind.SUBSCRIPTION: """
        LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MessageCount MaxDeliveryCount
        EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails
        ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus UserMetadata
    """,
}
ORDERS: Final[Mapping[EntityKind, tuple[str, ...]]] = {
    kind: tuple(dict.fromkeys([*text.split(), *[setting.element for setting in settings_of(CLASSES[kind])]]))
    for kind, text in _ORDERS.items()
}
"""The service adds new elements at the end, and so does the table of settings."""
_LATER_ELEMENTS: Final = {
    "CreatedAt": "2012-03",
    "UpdatedAt": "2012-03",
    "AccessedAt": "2012-03",
    "CountDetails": "2012-03",
    "SubscriptionCount": "2012-03",
    "EntityAvailabilityStatus": "2013-04",
    "EnableSubscriptionPartitioning": "2014-01",
    "SqlFilterCount": "2024-05",
    "CorrelationFilterCount": "2024-05",
}
"""Elements that are no settings, by the first api-version that has them."""
SINCE: Final[Mapping[str, str]] = {
    **{name: setting.since for name, setting in BY_ELEMENT.items() if setting.since},
    **_LATER_ELEMENTS,
}
"""Every element that the first api-version did not have."""

_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NIL: Final = attribute_key(INSTANCE, "nil")
_TYPE: Final = attribute_key(INSTANCE, "type")
_STATUSES: Final = {status.value.lower(): status for status in EntityStatus}
_RIGHTS: Final = ("Manage", "Send", "Listen")
"""In the order in which the service lists them."""
_POLICY_TYPE: Final = "SharedAccessAuthorizationRule"


# Elements.


def escaped(text: str) -> str:
    """Text as element content or attribute value; what XML cannot hold at all becomes U+FFFD."""
    safe = _NOT_XML.sub("\ufffd", text)
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def element(name: str, text: str) -> str:
    return f"<{name}>{escaped(text)}</{name}>"


def described(name: str, elements: Sequence[str]) -> str:
    """A description as an entry's content, with the two namespaces that its elements and types need."""
    return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{"".join(elements)}</{name}>'


def content_of(root: Element) -> Element:
    """The one description in an entry's content."""
    if root.namespace != ATOM or root.name != "entry":
        raise MalformedData(f"The document must be an 'entry' of {ATOM}, not '{root.name[:64]}'.")
    content = root.child(ATOM, "content")
    if content is None or not content.children:
        raise MalformedData("The entry has no content with a description in it.")
    description = content.children[0]
    if len(content.children) > 1:
        raise MalformedData("The entry's content holds more than one description.")
    if description.namespace != SERVICE_BUS:
        raise MalformedData(f"The description '{description.name[:64]}' is not in the namespace {SERVICE_BUS}.")
    return description


def children_of(parent: Element) -> dict[str, Element]:
    """Children by name. One that says nil counts as absent; a child that is there twice is refused."""
    fields: dict[str, Element] = {}
    for child in parent.children:
        if child.namespace != SERVICE_BUS or child.attributes.get(_NIL) in ("true", "1"):
            continue
        if child.name in fields:
            raise MalformedData(f"The element '{child.name[:64]}' is there twice.")
        fields[child.name] = child
    return fields


def type_of(element: Element) -> str:
    """Returns the type attribute without its prefix, which each client chooses itself; "" if there is none."""
    return element.attributes.get(_TYPE, "").rpartition(":")[2]


# Settings.


def has_element(name: str, api_version: str) -> bool:
    """Whether this version of the API knows the element."""
    return api_version >= SINCE.get(name, "")


def write_setting(setting: Setting, value: Any, host: str) -> str:
    """Returns the setting's element; "" for a text, number or target that is None."""
    match setting.kind:
        case Kind.POLICIES:
            return write_authorization_rules(value)
        case Kind.DURATION:
            text = format_duration(value)
        case Kind.BOOLEAN:
            text = format_boolean(value)
        case _ if value is None:
            return ""
        case Kind.TARGET:
            text = f"sb://{host}/{value}"
        case _:
            text = value.value if isinstance(value, EntityStatus) else str(value)
    return element(setting.element, text)


def read_settings(kind: EntityKind, fields: Mapping[str, Element]) -> dict[str, Any]:
    """The settings of this kind of entity that the elements name, by their names in Python."""
    names = [name for name in ORDERS[kind] if name in fields and name in BY_ELEMENT]
    return {BY_ELEMENT[name].name: _read_setting(BY_ELEMENT[name], fields[name]) for name in names}


def _read_setting(setting: Setting, field: Element) -> object:
    name, text = setting.element, field.text.strip()
    match setting.kind:
        case Kind.POLICIES:
            return read_authorization_rules(field)
        case Kind.DURATION:
            return parse_duration(text, name)
        case Kind.BOOLEAN:
            return parse_boolean(text, name)
        case Kind.INTEGER | Kind.SIZE:
            return parse_integer(text, name)
        case Kind.TARGET:
            return _path_of(text, name)
        case Kind.STATUS:
            return _read_status(text, name)
        case Kind.TEXT:
            return field.text or None


def _read_status(text: str, name: str) -> EntityStatus:
    status = _STATUSES.get(text.lower())
    if status is None:
        choices = ", ".join([one.value for one in EntityStatus])
        raise InvalidArgument(f"{name}: '{text[:64]}' is not one of {choices}.")
    return status


def _path_of(address: str, name: str) -> str | None:
    """Clients send an absolute URI of whatever host they know the namespace by; only the path counts."""
    _, is_absolute, rest = address.partition("://")
    path = rest.partition("/")[2] if is_absolute else address
    try:
        return unquote_to_bytes(path.strip("/")).decode().strip("/") or None
    except UnicodeError:
        raise InvalidArgument(f"{name} is not UTF-8.") from None


# Policies.


def write_authorization_rules(rules: Sequence[AuthorizationRule]) -> str:
    return f"<AuthorizationRules>{''.join([_write_policy(rule) for rule in rules])}</AuthorizationRules>"


def _write_policy(rule: AuthorizationRule) -> str:
    rights = "".join([element("AccessRights", right) for right in _RIGHTS if right in rule.rights])
    return (
        f'<AuthorizationRule i:type="{_POLICY_TYPE}">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights>"
        + element("CreatedTime", format_time(rule.created_at))
        + element("ModifiedTime", format_time(rule.modified_at))
        + element("KeyName", rule.key_name)
        + element("PrimaryKey", rule.primary_key)
        + element("SecondaryKey", rule.secondary_key)
        + "</AuthorizationRule>"
    )


def read_authorization_rules(field: Element) -> tuple[AuthorizationRule, ...]:
    """Keys that are not given are empty: the namespace makes them."""
    return tuple([_read_policy(child) for child in field.children if child.name == "AuthorizationRule"])


def _read_policy(rule: Element) -> AuthorizationRule:
    kind = type_of(rule) or _POLICY_TYPE
    if kind != _POLICY_TYPE:
        raise NotSupported(f"An AuthorizationRule of the type '{kind[:64]}' is not known here.")
    fields = children_of(rule)
    texts = {name: field.text.strip() for name, field in fields.items()}
    rights = fields.get("Rights")
    return AuthorizationRule(
        key_name=texts.get("KeyName", ""),
        primary_key=texts.get("PrimaryKey", ""),
        secondary_key=texts.get("SecondaryKey", ""),
        rights=frozenset([child.text.strip() for child in rights.children]) if rights is not None else frozenset(),
    )
