"""Messages of a backlog queue by their lock tokens, many at a time, and which of them are not ours any more: what both
ports of the syphon do alike. `origin` of a delivery has its `lock_token`, and the `link` that it came on; that is None
if it was received by its sequence number."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

from tandembus.pairing.syphon_messages import Delivery

DEFERRED_AT_ONCE: Final = 50
"""Their payloads come in one answer, so not too many."""
TOKENS_AT_ONCE: Final = 250


def ours_and_lost(deliveries: Sequence[Delivery], link: object) -> tuple[list[Delivery], list[Delivery]]:
    """Those that may be settled while this is the link, and those that came on one that is gone."""
    ours: list[Delivery] = []
    lost: list[Delivery] = []
    for each in deliveries:
        came_on = each.origin.link
        (ours if came_on is None or came_on is link else lost).append(each)
    return ours, lost


async def by_token(
    deliveries: Sequence[Delivery],
    do: Callable[[list[UUID]], Coroutine[Any, Any, None]],
    lost_errors: tuple[type[Exception], ...],
) -> list[Delivery]:
    """Have it done through the management node, which does it for all of them or none: if one lock is lost, one by one.
    Returns those whose locks were lost."""
    lost: list[Delivery] = []
    for first in range(0, len(deliveries), TOKENS_AT_ONCE):
        some = deliveries[first : first + TOKENS_AT_ONCE]
        try:
            await do([each.origin.lock_token for each in some])
        except lost_errors:
            if len(some) == 1:
                lost += some
                continue
            for each in some:
                lost += await by_token([each], do, lost_errors)
    return lost
