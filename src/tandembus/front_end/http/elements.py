"""Single elements of a description: how a value is written, and how it is read back from whatever clients send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tandembus.descriptions import EntityStatus
from tandembus.errors import InvalidArgument, MalformedData
from tandembus.front_end.http.atom import ATOM, INSTANCE, SERVICE_BUS
from tandembus.front_end.http.values import (
    format_boolean,
    format_duration,
    parse_boolean,
    parse_duration,
    parse_integer,
)
from tandembus.front_end.http.xml_reader import Element, attribute_key
from tandembus.security.scopes import path_of_uri

NEVER_AS_S: Final = float("inf")
_NIL: Final = attribute_key(INSTANCE, "nil")
_TYPE: Final = attribute_key(INSTANCE, "type")
_STATUSES: Final = {status.value.lower(): status for status in EntityStatus}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value. What is written as None is left out."""

    read: Callable[[Element, str], object]
    write: Callable[[object], str | None]


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
    """Children by name. One that says nil is as good as absent; the same one twice could mean either."""
    fields: dict[str, Element] = {}
    for child in parent.children:
        if child.namespace != SERVICE_BUS or child.attributes.get(_NIL) in ("true", "1"):
            continue
        if child.name in fields:
            raise MalformedData(f"The element '{child.name[:64]}' is there twice.")
        fields[child.name] = child
    return fields


def type_of(element: Element) -> str:
    """What its type attribute says, without the prefix, which is anybody's choice; "" without one."""
    return element.attributes.get(_TYPE, "").rpartition(":")[2]


def _read_duration(field: Element, name: str) -> float:
    duration_s = parse_duration(field.text.strip(), name)
    return NEVER_AS_S if duration_s is None else duration_s


def _read_optional_duration(field: Element, name: str) -> float | None:
    return parse_duration(field.text.strip(), name)


def _write_duration(value: object) -> str:
    assert value is None or isinstance(value, int | float)
    return format_duration(value)


def _read_boolean(field: Element, name: str) -> bool:
    return parse_boolean(field.text.strip(), name)


def _read_integer(field: Element, name: str) -> int:
    return parse_integer(field.text.strip(), name)


def _read_status(field: Element, name: str) -> EntityStatus:
    status = _STATUSES.get(field.text.strip().lower())
    if status is None:
        choices = ", ".join([one.value for one in EntityStatus])
        raise InvalidArgument(f"{name}: '{field.text.strip()[:64]}' is not one of {choices}.")
    return status


def _write_status(value: object) -> str:
    assert isinstance(value, EntityStatus)
    return value.value


def _read_text(field: Element, _name: str) -> str | None:
    return field.text or None


def _read_target(field: Element, name: str) -> str | None:
    """Clients send an absolute URI of whatever host they know us by; only the path counts."""
    try:
        return path_of_uri(field.text.strip()) or None
    except UnicodeError:
        raise InvalidArgument(f"{name} is not UTF-8.") from None


def _write_text(value: object) -> str | None:
    return None if value is None else str(value)


DURATION: Final = Kind(_read_duration, _write_duration)
OPTIONAL_DURATION: Final = Kind(_read_optional_duration, _write_duration)
BOOLEAN: Final = Kind(_read_boolean, lambda value: format_boolean(bool(value)))
INTEGER: Final = Kind(_read_integer, _write_text)
STATUS: Final = Kind(_read_status, _write_status)
TEXT: Final = Kind(_read_text, _write_text)
TARGET: Final = Kind(_read_target, _write_text)
