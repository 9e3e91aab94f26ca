"""What a session has sent and nobody has settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.engine.serial import distance, following

if TYPE_CHECKING:
    from tandembus.amqp.engine.link import OutgoingLink


@final
class OutgoingDelivery:
    """A delivery that we sent unsettled; its session keeps it until it is settled."""

    __slots__ = ("context", "delivery_id", "link", "tag")

    def __init__(self, link: OutgoingLink, delivery_id: i64, tag: bytes, context: object) -> None:
        self.link: Final = link
        self.delivery_id: i64 = delivery_id
        self.tag: Final = tag
        self.context: object = context


@final
class UnsettledDeliveries:
    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: Final[dict[int, OutgoingDelivery]] = {}

    def add(self, delivery: OutgoingDelivery) -> None:
        delivery.link.unsettled_count += 1
        self.by_id[int(delivery.delivery_id)] = delivery

    def take(self, first: i64, last: i64, forget: bool) -> list[OutgoingDelivery]:
        """The deliveries from `first` to `last` in order, however large the peer says that range is."""
        count: i64 = distance(last, first) + 1
        if count > i64(len(self.by_id)):
            found = self._among_all(first, count)
        else:
            found = self._one_by_one(first, count)
        if forget:
            for delivery in found:
                delivery.link.unsettled_count -= 1
                del self.by_id[int(delivery.delivery_id)]
        return found

    def _one_by_one(self, first: i64, count: i64) -> list[OutgoingDelivery]:
        found: list[OutgoingDelivery] = []
        delivery_id: i64 = first
        while count > 0:
            delivery = self.by_id.get(int(delivery_id))
            if delivery is not None:
                found.append(delivery)
            delivery_id = following(delivery_id)
            count -= 1
        return found

    def _among_all(self, first: i64, count: i64) -> list[OutgoingDelivery]:
        # Kept in the order of sending, and the ids count up: what is found is in order already.
        return [delivery for delivery in self.by_id.values() if 0 <= distance(delivery.delivery_id, first) < count]

    def forget_link(self, link: OutgoingLink) -> None:
        """Counted per link, so that links which owe nothing cost nothing here."""
        if link.unsettled_count == 0:
            return
        link.unsettled_count = 0
        for delivery_id in [key for key, delivery in self.by_id.items() if delivery.link is link]:
            del self.by_id[delivery_id]

    def clear(self) -> None:
        for delivery in self.by_id.values():
            delivery.link.unsettled_count = 0
        self.by_id.clear()
