"""Atom entries around descriptions: the form in which a namespace is asked for entities and tells of them."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from tandembus.client.durations import duration_of, duration_text
from tandembus.errors import EntityNotFound, MalformedData

ATOM: Final = "{http://www.w3.org/2005/Atom}"
CONNECT: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
COUNTS: Final = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"
INSTANCE_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"

Scalar = float | int | bool | str | None


def entry_with(description: ElementTree.Element) -> bytes:
    """The Atom entry that asks for what is described."""
    entry = ElementTree.Element(f"{ATOM}entry")
    ElementTree.SubElement(entry, f"{ATOM}content", type="application/xml").append(description)
    text: bytes = ElementTree.tostring(entry, encoding="utf-8", xml_declaration=True)
    return text


def description_in(entry: ElementTree.Element, name: str) -> ElementTree.Element:
    """The description of this kind in an answer; services answer with an empty feed for what is not there."""
    description = entry.find(f"{ATOM}content/{CONNECT}{name}")
    if description is None:
        raise EntityNotFound(f"the service answered without a {name}: there is no such entity")
    return description


def title_of(entry: ElementTree.Element) -> str:
    return (entry.findtext(f"{ATOM}title") or "").strip()


def add(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, CONNECT + name)
    child.text = text
    return child


def text_of(kind: str, value: float | str) -> str:
    match kind:
        case "duration":
            return duration_text(float(value))
        case "flag":
            return "true" if value else "false"
        case _:
            return str(value)


def value_of(kind: str, text: str | None) -> Scalar:
    """None for what the service does not say."""
    if not text:
        return None
    match kind:
        case "duration":
            return duration_of(text)
        case "number":
            return whole_number(text)
        case "flag":
            return text.strip().lower() == "true"
        case _:
            return text


def whole_number(text: str | None) -> int:
    """0 where there is none: counts that a service leaves out are not counted there."""
    try:
        return int(text or 0)
    except ValueError:
        raise MalformedData(f"the service answered with {text!r} where a number belongs") from None
