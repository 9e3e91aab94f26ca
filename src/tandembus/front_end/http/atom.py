"""Atom entries and feeds around descriptions, in the exact shapes that the SDKs' administration clients read.

What looks arbitrary here is what a client depends on: the order of elements, the one attribute of
CountDetails, the second link of a feed, the capitals in an id. Reading is lenient (any prefix, any order,
unknown elements skipped), as far as nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from tandembus.front_end.http.values import format_time

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"

ENTRY_CONTENT_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
FEED_CONTENT_TYPE: Final = "application/atom+xml;type=feed;charset=utf-8"
ERROR_CONTENT_TYPE: Final = "application/xml;charset=utf-8"

_PLAIN_IN_PATHS: Final = "/$~!'()*+,;=:@&"
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request reached us, as the client sees it: links and ids lead back there."""

    scheme: str
    host: str
    api_version: str
    namespace_name: str

    def url(self, path: str) -> str:
        # Nothing is escaped that need not be: the JS SDK takes names from here as they stand.
        return f"{self.scheme}://{self.host}/{quote(path, safe=_PLAIN_IN_PATHS)}"

    def versioned_url(self, path: str) -> str:
        return f"{self.url(path)}?{urlencode({'api-version': self.api_version})}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entity (or the namespace) on its way into XML; `content` is written already."""

    path: str
    title: str
    created_at: float
    updated_at: float
    content: str


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a list."""

    entries: Sequence[Entry]
    skip: int
    top: int
    has_more: bool


def escaped(text: str) -> str:
    """Text as element content or attribute value; what XML cannot hold at all becomes U+FFFD."""
    safe = _NOT_XML.sub("\ufffd", text)
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def element(name: str, text: str) -> str:
    return f"<{name}>{escaped(text)}</{name}>"


def described(name: str, elements: Sequence[str]) -> str:
    """A description as an entry's content, with the two namespaces that its elements and types need."""
    return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{"".join(elements)}</{name}>'


def entry_document(entry: Entry, origin: Origin) -> bytes:
    return _entry(entry, origin, f' xmlns="{ATOM}"').encode()


def feed_document(path: str, title: str, page: Page, origin: Origin, now: float) -> bytes:
    """A page of a list: one link to itself and, only when there is more, a second one to the next page."""
    links = _link("self", _page_url(origin, path, page.skip, page.top))
    if page.has_more:
        links += _link("next", _page_url(origin, path, page.skip + page.top, page.top))
    entries = "".join([_entry(entry, origin, "") for entry in page.entries])
    head = f'<title type="text">{escaped(title)}</title>' + element("id", origin.versioned_url(path))
    updated = element("updated", format_time(now))
    return f'<feed xmlns="{ATOM}">{head}{updated}{links}{entries}</feed>'.encode()


def error_document(code: int, detail: str) -> bytes:
    return f"<Error>{element('Code', str(code))}{element('Detail', detail)}</Error>".encode()


def _entry(entry: Entry, origin: Origin, attributes: str) -> str:
    address = origin.versioned_url(entry.path)
    return (
        f"<entry{attributes}>"
        + element("id", address)
        + f'<title type="text">{escaped(entry.title)}</title>'
        + element("published", format_time(entry.created_at))
        + element("updated", format_time(entry.updated_at))
        + f"<author>{element('name', origin.namespace_name)}</author>"
        + _link("self", address)
        + f'<content type="application/xml">{entry.content}</content>'
        + "</entry>"
    )


def _link(relation: str, address: str) -> str:
    return f'<link rel="{relation}" href="{escaped(address)}"/>'


def _page_url(origin: Origin, path: str, skip: int, top: int) -> str:
    # Written out: the Python SDK looks for the parameters by these literal names.
    return f"{origin.url(path)}?$skip={skip}&$top={top}&{urlencode({'api-version': origin.api_version})}"
