"""A queue's description to and from XML, in the elements and the order of the wire contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tandembus.descriptions import AuthorizationRule, EntityStatus, QueueDescription
from tandembus.errors import InvalidArgument, MalformedData, NotSupported
from tandembus.front_end.http.atom import ATOM, COUNTS, INSTANCE, SERVICE_BUS, Origin, described, element
from tandembus.front_end.http.values import (
    format_boolean,
    format_duration,
    format_time,
    parse_boolean,
    parse_duration,
    parse_integer,
)
from tandembus.front_end.http.xml_reader import Element, attribute_key
from tandembus.limits import Limits
from tandembus.security.scopes import strip_host

NEVER_AS_S: Final = float("inf")
_NIL: Final = attribute_key(INSTANCE, "nil")
_RULE_TYPE: Final = attribute_key(INSTANCE, "type")
_STATUSES: Final = {status.value.lower(): status for status in EntityStatus}


class Counts(Protocol):
    """What the messages of an entity add up to at the moment."""

    @property
    def active(self) -> int: ...
    @property
    def dead_letter(self) -> int: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def transfer(self) -> int: ...
    @property
    def transfer_dead_letter(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _NoMessages:
    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0


NOTHING: Final[Counts] = _NoMessages()


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as an answer shows it: what it was asked to be, and what has become of it."""

    description: QueueDescription
    counts: Counts
    created_at: float
    updated_at: float
    accessed_at: float


def write_queue(state: QueueState, origin: Origin, limits: Limits) -> str:
    """The QueueDescription element, all elements of the contract in its order."""
    queue, counts = state.description, state.counts
    message_count = counts.active + counts.dead_letter + counts.scheduled + counts.transfer
    kilobytes = queue.max_message_size_in_kilobytes or limits.max_message_size_bytes // 1024
    elements = [
        element("LockDuration", format_duration(queue.lock_duration_s)),
        element("MaxSizeInMegabytes", str(queue.max_size_in_megabytes)),
        element("RequiresDuplicateDetection", format_boolean(queue.requires_duplicate_detection)),
        element("RequiresSession", format_boolean(queue.requires_session)),
        element("DefaultMessageTimeToLive", format_duration(queue.default_message_time_to_live_s)),
        element("DeadLetteringOnMessageExpiration", format_boolean(queue.dead_lettering_on_message_expiration)),
        element(
            "DuplicateDetectionHistoryTimeWindow",
            format_duration(queue.duplicate_detection_history_time_window_s),
        ),
        element("MaxDeliveryCount", str(queue.max_delivery_count)),
        element("EnableBatchedOperations", format_boolean(queue.enable_batched_operations)),
        element("SizeInBytes", str(counts.size_bytes)),
        element("MessageCount", str(message_count)),
        element("IsAnonymousAccessible", format_boolean(queue.is_anonymous_accessible)),
        _write_rules(queue.authorization_rules),
        element("Status", queue.status.value),
        element("CreatedAt", format_time(state.created_at)),
        element("UpdatedAt", format_time(state.updated_at)),
        element("AccessedAt", format_time(state.accessed_at)),
        element("SupportOrdering", format_boolean(queue.support_ordering)),
        write_counts(counts),
        element("AutoDeleteOnIdle", format_duration(queue.auto_delete_on_idle_s)),
        element("EnablePartitioning", format_boolean(queue.enable_partitioning)),
        element("EntityAvailabilityStatus", "Available"),
        element("EnableExpress", format_boolean(queue.enable_express)),
        _write_target("ForwardTo", queue.forward_to, origin),
        element("UserMetadata", queue.user_metadata) if queue.user_metadata is not None else "",
        _write_target("ForwardDeadLetteredMessagesTo", queue.forward_dead_lettered_messages_to, origin),
        element("MaxMessageSizeInKilobytes", str(kilobytes)),
    ]
    return described("QueueDescription", elements)


def write_counts(counts: Counts) -> str:
    """CountDetails.

    Its prefix must be declared right here and nothing else may be: the JS SDK looks no further.
    """
    figures = (
        ("ActiveMessageCount", counts.active),
        ("DeadLetterMessageCount", counts.dead_letter),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", counts.transfer),
        ("TransferDeadLetterMessageCount", counts.transfer_dead_letter),
    )
    children = "".join([element(f"d2p1:{name}", str(figure)) for name, figure in figures])
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{children}</CountDetails>'


def read_queue(root: Element, name: str, present_rules: tuple[AuthorizationRule, ...] = ()) -> QueueDescription:
    """The description in a create or update request.

    Absent elements get the service's defaults; read-only ones (counts, times) are what clients echo, and are
    skipped. Only authorization rules stay as they are unless the request has some, or an empty list of them:
    a client that does not know of them must not lock out those who do.
    """
    fields = _settings(_description_in(root))
    settings = {setting: read(fields[tag], tag) for tag, (setting, read) in _READERS.items() if tag in fields}
    rules = fields.get("AuthorizationRules")
    settings["authorization_rules"] = _read_rules(rules) if rules is not None else present_rules
    return QueueDescription(name, **settings)  # type: ignore[arg-type]


def _description_in(root: Element) -> Element:
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
    if description.name in ("TopicDescription", "SubscriptionDescription", "RuleDescription"):
        raise NotSupported(f"{description.name}: this version has queues, and no topics yet.")
    if description.name != "QueueDescription":
        raise MalformedData(f"The description '{description.name[:64]}' is not known here.")
    return description


def _settings(parent: Element) -> dict[str, Element]:
    """Children by name. One that says nil is as good as absent; the same one twice could mean either."""
    fields: dict[str, Element] = {}
    for child in parent.children:
        if child.namespace != SERVICE_BUS or child.attributes.get(_NIL) in ("true", "1"):
            continue
        if child.name in fields:
            raise MalformedData(f"The element '{child.name[:64]}' is there twice.")
        fields[child.name] = child
    return fields


def _duration(field: Element, name: str) -> float:
    duration_s = parse_duration(field.text.strip(), name)
    return NEVER_AS_S if duration_s is None else duration_s


def _optional_duration(field: Element, name: str) -> float | None:
    return parse_duration(field.text.strip(), name)


def _boolean(field: Element, name: str) -> bool:
    return parse_boolean(field.text.strip(), name)


def _integer(field: Element, name: str) -> int:
    return parse_integer(field.text.strip(), name)


def _status(field: Element, name: str) -> EntityStatus:
    status = _STATUSES.get(field.text.strip().lower())
    if status is None:
        choices = ", ".join([one.value for one in EntityStatus])
        raise InvalidArgument(f"{name}: '{field.text.strip()[:64]}' is not one of {choices}.")
    return status


def _text(field: Element, _name: str) -> str | None:
    return field.text or None


def _target(field: Element, _name: str) -> str | None:
    """Clients send an absolute URI of whatever host they know us by; only the path counts."""
    return strip_host(field.text.strip()) or None


_READERS: Final[Mapping[str, tuple[str, Callable[[Element, str], object]]]] = {
    "LockDuration": ("lock_duration_s", _duration),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", _integer),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _boolean),
    "RequiresSession": ("requires_session", _boolean),
    "DefaultMessageTimeToLive": ("default_message_time_to_live_s", _optional_duration),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", _boolean),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window_s", _duration),
    "MaxDeliveryCount": ("max_delivery_count", _integer),
    "EnableBatchedOperations": ("enable_batched_operations", _boolean),
    "IsAnonymousAccessible": ("is_anonymous_accessible", _boolean),
    "Status": ("status", _status),
    "SupportOrdering": ("support_ordering", _boolean),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_s", _optional_duration),
    "EnablePartitioning": ("enable_partitioning", _boolean),
    "EnableExpress": ("enable_express", _boolean),
    "ForwardTo": ("forward_to", _target),
    "UserMetadata": ("user_metadata", _text),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _target),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", _integer),
}


def _write_target(name: str, target: str | None, origin: Origin) -> str:
    return element(name, f"sb://{origin.host}/{target}") if target is not None else ""


def _write_rules(rules: tuple[AuthorizationRule, ...]) -> str:
    return f"<AuthorizationRules>{''.join([_write_rule(rule) for rule in rules])}</AuthorizationRules>"


def _write_rule(rule: AuthorizationRule) -> str:
    rights = "".join([element("AccessRights", right) for right in sorted(rule.rights)])
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights>"
        + element("CreatedTime", format_time(rule.created_at))
        + element("ModifiedTime", format_time(rule.modified_at))
        + element("KeyName", rule.key_name)
        + element("PrimaryKey", rule.primary_key)
        + element("SecondaryKey", rule.secondary_key)
        + "</AuthorizationRule>"
    )


def _read_rules(field: Element) -> tuple[AuthorizationRule, ...]:
    return tuple([_read_rule(child) for child in field.children if child.name == "AuthorizationRule"])


def _read_rule(rule: Element) -> AuthorizationRule:
    kind = rule.attributes.get(_RULE_TYPE, "SharedAccessAuthorizationRule").rpartition(":")[2]
    if kind != "SharedAccessAuthorizationRule":
        raise NotSupported(f"An AuthorizationRule of the type '{kind[:64]}' is not known here.")
    fields = _settings(rule)
    texts = {name: field.text.strip() for name, field in fields.items()}
    rights = fields.get("Rights")
    return AuthorizationRule(
        key_name=texts.get("KeyName", ""),
        primary_key=texts.get("PrimaryKey", ""),
        secondary_key=texts.get("SecondaryKey", ""),
        rights=frozenset([child.text.strip() for child in rights.children]) if rights is not None else frozenset(),
    )
