"""Which entities there are, a page at a time, and all there is to know of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from tandembus.descriptions import EntityKind
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.entity_documents import EntityDocuments
from tandembus.front_end.http.api.routes import Route, asked, told
from tandembus.front_end.http.api.setting_fields import KINDS, field_documents
from tandembus.front_end.http.values import parse_integer
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Claims, Right

PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200
MAX_SEARCH_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Listing:
    """Which entities are asked for, and which page of them."""

    search: str = ""
    kind: EntityKind | None = None
    """None: queues and topics."""
    topic: str | None = None
    """Only its subscriptions."""
    skip: int = 0
    top: int = PAGE_SIZE


class EntityRoutes:
    def __init__(self, namespace: Namespace, access: Access, documents: EntityDocuments) -> None:
        self._namespace = namespace
        self._access = access
        self._documents = documents

    def routes(self) -> list[Route]:
        """Told also while a fault says that the namespace is out: that is when people look."""
        return [
            Route("GET", "entities", self._list, is_about_itself=True),
            Route("GET", "entity", self._get, is_about_itself=True),
            Route("GET", "settings", self._settings, is_about_itself=True),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        claims = self._access.check_any(request)
        listing = parse_listing(request)
        if listing.topic is not None and self._access.allows_any(claims, listing.topic):
            self._namespace.catalog.get_topic(listing.topic)
        keys = _within(claims, _keys(self._namespace.catalog, listing))
        page = keys[listing.skip : listing.skip + listing.top]
        entries = [entry for entry in map(self._namespace.catalog.find, page) if entry is not None]
        return told(
            {
                "count": len(keys),
                "skip": listing.skip,
                "top": listing.top,
                "entities": await self._documents.summaries(entries, claims),
            }
        )

    async def _get(self, request: web.Request) -> web.Response:
        path = asked(request, "path")
        claims = self._access.check_one_of(request, tuple(Right), path)
        await self._namespace.refresh()
        return told(await self._documents.whole(found(self._namespace, path), claims))

    async def _settings(self, request: web.Request) -> web.Response:
        self._access.check_any(request)
        return told({kind.value: field_documents(kind, self._namespace.limits) for kind in KINDS})


def found(namespace: Namespace, path: str) -> Entry:
    entry = namespace.catalog.find(path)
    if entry is None:
        raise namespace.not_found(path[:300])
    return entry


def parse_listing(request: web.Request) -> Listing:
    """Raises InvalidArgument."""
    query = request.query
    skip = parse_integer(query.get("skip", "0"), "skip")
    top = parse_integer(query.get("top", str(PAGE_SIZE)), "top")
    if skip < 0 or not 0 <= top <= MAX_PAGE_SIZE:
        raise InvalidArgument(f"skip must not be negative, and top must be 0 to {MAX_PAGE_SIZE}.")
    search = query.get("search", "")
    if len(search) > MAX_SEARCH_LENGTH:
        raise InvalidArgument(f"search has more than {MAX_SEARCH_LENGTH} characters.")
    kinds = {kind.value: kind for kind in EntityKind}
    word = query.get("kind", "")
    if word and word not in kinds:
        raise InvalidArgument(f"kind: '{word[:64]}' is none of {', '.join(kinds)}.")
    topic = query.get("topic") or None
    if topic is not None and word not in ("", EntityKind.SUBSCRIPTION.value):
        raise InvalidArgument("A topic has subscriptions only.")
    return Listing(search, kinds.get(word), topic, skip, top)


def _keys(catalog: CatalogView, listing: Listing) -> list[str]:
    """Of all that are asked for, in order: names are looked through, entities are not touched."""
    if listing.topic is not None:
        return catalog.subscription_keys(listing.topic, listing.search)
    if listing.kind is not None:
        return catalog.keys(listing.kind, listing.search)
    queues, topics = (catalog.keys(kind, listing.search) for kind in (EntityKind.QUEUE, EntityKind.TOPIC))
    return sorted(queues + topics)


def _within(claims: Claims, keys: list[str]) -> list[str]:
    """Returns the keys that the claims cover."""
    return [key for key in keys if claims.covers(key)] if claims.scope else keys
