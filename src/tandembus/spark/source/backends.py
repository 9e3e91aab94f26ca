"""Which way a reader goes: with the reservations of tandembus, or with what every Service Bus offers."""

from __future__ import annotations

import logging
from typing import Final

from tandembus.clock import Clock
from tandembus.errors import FragmentUnavailable, NotSupported, Unauthorized
from tandembus.spark.source.browsing import PAGE_MESSAGES, Browser, PlainBrowser
from tandembus.spark.source.deferral import DeferralLedger
from tandembus.spark.source.ledger import Ledger, NativeLedger
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.pages import Fetch, Page, share_of

log = logging.getLogger("tandembus.spark")

NATIVE: Final = "native"
LIMITED: Final = "Limited"


class NativeBrowser:
    """Fragment by fragment, in answers of some megabytes."""

    def __init__(self, link: Link) -> None:
        self._link: Final = link
        self._plain: Final = PlainBrowser(link)

    def fetch(self, entity: str, fragment: int | None, last: int) -> Fetch:
        if fragment is None:
            return self._plain.fetch(entity, None, last)
        page_bytes = share_of(self._link.options)

        async def fetch(first: int) -> Page:
            reservations = await self._link.reservations(entity)
            answer = await reservations.browse(fragment, first, last, PAGE_MESSAGES, page_bytes)
            return answer.messages, answer.next

        return fetch


def browser_for(link: Link) -> Browser:
    return NativeBrowser(link) if link.options.backend == NATIVE else PlainBrowser(link)


def ledger_for(link: Link, clock: Clock) -> Ledger:
    if link.options.backend == NATIVE:
        return NativeLedger(link, link.options)
    return DeferralLedger(link, link.options, clock)


async def ends_of(link: Link, entity: str) -> dict[int, int] | None:
    """The last number given out in each of the chosen fragments; None where the service does not tell. Raises
    EntityNotFound."""
    if link.options.backend == NATIVE:
        try:
            return await (await link.reservations(entity)).ends(link.options.fragments)
        except NotSupported:
            pass
    node = await link.management(entity)
    await node.peek(1, 1)  # so that a wrong name is told before tasks are started
    return None


async def check_is_whole(options: SourceOptions, entity: str) -> None:
    """Ask administration, since a peek passes over fragments that are out and does not say so. Raises
    `FragmentUnavailable` where a part of the entity is out of reach; logs where administration does not tell."""
    from tandembus.client.addresses import subscription_of
    from tandembus.client.administration import Administration

    path = entity.partition("/$")[0]
    subscription = subscription_of(path)
    try:
        async with Administration(options.connection_string(), ca_path=options.ca_path) as namespace:
            asked = namespace.get_entity(path) if subscription is None else namespace.get_subscription(*subscription)
            found = await asked
    except (Unauthorized, OSError) as error:
        log.warning(
            "%s: it is unknown whether all messages are read: a peek passes over parts that are out of reach, and only "
            "administration, with the right Manage, shows whether there are any: %s",
            entity,
            error,
        )
        return
    if found.availability_status == LIMITED:
        raise FragmentUnavailable(f"{entity}: some of its messages are out of reach: read it again when they are back")
