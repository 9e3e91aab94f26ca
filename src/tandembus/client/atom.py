"""Atom entries around descriptions, as a client sends and reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tandembus.descriptions.atom import ATOM, SERVICE_BUS
from tandembus.descriptions.xml_reader import Element, read_xml
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, MalformedData

MAX_BYTES: Final = 256 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_ELEMENTS: Final = 10_000_000
"""Answers of the namespace that was asked: caps only against a flood."""

T = TypeVar("T")


def document_of(body: bytes) -> Element:
    """An empty document where the answer has none."""
    if not body:
        return Element("", "nothing", {})
    try:
        return read_xml(body, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS)
    except MalformedData as error:
        raise BusError("the answer is not XML: is this address a Service Bus namespace?") from error


def entry_with(description: str) -> bytes:
    """The Atom entry that asks for what is described."""
    head = f'<?xml version="1.0" encoding="utf-8"?><entry xmlns="{ATOM}"><content type="application/xml">'
    return f"{head}{description}</content></entry>".encode()


def description_in(entry: Element, name: str) -> Element:
    """The description of this kind in an answer; services answer with an empty feed for what is not there."""
    content = entry.child(ATOM, "content")
    description = content.child(SERVICE_BUS, name) if content is not None else None
    if description is None:
        raise EntityNotFound(f"the service answered without a {name}: there is no such entity")
    return description


def title_of(entry: Element) -> str:
    title = entry.child(ATOM, "title")
    return title.text.strip() if title is not None else ""


def as_answered(read: Callable[[], T]) -> T:
    """What is wrong in an answer is the service's mistake, not the caller's."""
    try:
        return read()
    except InvalidArgument as error:
        raise MalformedData(f"the service answered with something that makes no sense: {error}") from None
