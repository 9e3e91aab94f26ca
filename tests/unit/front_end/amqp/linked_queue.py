"""A queue with a client at the other end of two engines in memory: the compiled links without sockets."""

from __future__ import annotations

from collections.abc import Callable

from tandembus.amqp.encoding.delivery_states import Outcome
from tandembus.amqp.engine import (
    DeliveryReceived,
    DispositionReceived,
    Event,
    IncomingLink,
    LinkAttaching,
    LinkFlow,
    OutgoingLink,
)
from tandembus.amqp.engine.events import SettlementConfirmed
from tandembus.front_end.amqp.dispatch import dispatch
from tandembus.front_end.amqp.link_host import Flusher, LinkHost
from tandembus.front_end.amqp.receiver_link import ReceiveMeter, ReceiverLink
from tandembus.front_end.amqp.sender_link import SendChecks, SenderLink, SendMeter
from tandembus.front_end.amqp.transactions import TransactionLimits, TransactionMemory, Transactions
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.traffic import Traffic
from tandembus.large_messages import LargeMemory
from tandembus.metering.slot import MeterSlot
from tandembus.store.messaging_store import MAIN
from tests.unit.amqp.engine.peers import Pair, only
from tests.unit.broker.one_queue import OneQueue
from tests.unit.namespace.partitioned_queue import PartitionedQueue


def slot(name: str) -> MeterSlot:
    return MeterSlot("queue", name, "normal", [])


def checks(max_message_bytes: int = 10_000, max_batch_messages: int = 10) -> SendChecks:
    return SendChecks(max_message_bytes, 2_000, 1_000, max_batch_messages, 128)


def _traffic_of(queue: OneQueue | PartitionedQueue) -> Traffic:
    if isinstance(queue, PartitionedQueue):
        return queue.traffic
    return LocalTraffic(queue.fragment, queue.broker.want, queue.broker.session_serving.want)


class LinkedQueue:
    def __init__(
        self,
        queue: OneQueue | PartitionedQueue,
        max_unsent_bytes: int = 1 << 20,
        max_unacknowledged_bytes: int = 1 << 20,
        soon: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.queue = queue
        self.traffic = _traffic_of(queue)
        self.pair = Pair().open()
        self.session = self.pair.begin()
        self.flusher = Flusher(soon)
        self.resumed_count = 0
        self.fed_count = 0
        self.transaction_memory = TransactionMemory(1 << 20, LargeMemory())
        limits = TransactionLimits(max_operations=10, max_bytes=10_000, max_open=3, timeout_s=120.0)
        self.transactions = Transactions(limits, self.transaction_memory, queue.clock)
        self.host = LinkHost(
            self.pair.server,
            self._to_client,
            self._resume,
            self._feed,
            self.flusher,
            max_unsent_bytes,
            max_unacknowledged_bytes,
            self.transactions,
            self.transaction_memory.large,
        )
        self.sends = SendMeter(slot("send"), slot("ping"))
        self.receives = ReceiveMeter(
            *[slot(name) for name in ("receive", "empty", "complete", "abandon", "defer", "dead")]
        )
        self.at_client: list[Event] = []
        """Everything the client was told so far."""
        for broker in queue.brokers if isinstance(queue, PartitionedQueue) else [queue.broker]:
            broker.on_turn_end = self.flusher.flush

    def _to_client(self, data: bytes) -> None:
        self.at_client += self.pair.client.receive_data(data)

    def _resume(self) -> None:
        self.resumed_count += 1

    def _feed(self) -> None:
        self.fed_count += 1

    def carry(self) -> list[Event]:
        """What the client has written reaches the links; the events that are no link's business come back."""
        events = self.pair.server.receive_data(self.pair.client.data_to_send())
        rest = dispatch(events)
        for event in rest:
            if isinstance(event, LinkFlow) and isinstance(event.link.context, ReceiverLink):
                self._take_flow(event.link.context)
        return rest

    def _take_flow(self, receiver: ReceiverLink) -> None:
        receiver.flow()
        self.traffic.feed(receiver, receiver.lane, receiver.link.drain)

    async def settle_down(self) -> None:
        """Both sides have said all they have to say."""
        self.carry()
        await self.queue.quiet()
        self.flusher.flush()
        self.carry()

    # The client's side.

    def sender(self, credit: int = 100, send_checks: SendChecks | None = None) -> tuple[OutgoingLink, SenderLink]:
        link = self.session.attach_sender("out", "queue")
        peer = only(LinkAttaching, self.carry()).link
        assert isinstance(peer, IncomingLink)
        half = SenderLink(peer, self.host, self.traffic, send_checks or checks(), self.sends, credit)
        peer.context = half
        peer.accept()
        half.top_up()
        self.host.flush()
        return link, half

    def receiver(self, lane: int = MAIN, is_destructive: bool = False) -> tuple[IncomingLink, ReceiverLink]:
        mode = 1 if is_destructive else 0
        link = self.session.attach_receiver("in", "queue", snd_settle_mode=mode, rcv_settle_mode=1 - mode)
        peer = only(LinkAttaching, self.carry()).link
        assert isinstance(peer, OutgoingLink)
        half = ReceiverLink(peer, self.host, self.traffic, lane, is_destructive, self.receives, has_partition=False)
        peer.context = half
        self.traffic.attach(half, lane)
        peer.accept()
        self.host.flush()
        return link, half

    async def received(self, link: IncomingLink, credit: int) -> list[DeliveryReceived]:
        before = len(self.deliveries())
        link.grant(credit)
        await self.settle_down()
        return self.deliveries()[before:]

    def deliveries(self) -> list[DeliveryReceived]:
        return [event for event in self.at_client if isinstance(event, DeliveryReceived)]

    def answers(self) -> list[tuple[int, Outcome]]:
        """What became of each send, in the order of the answers: delivery-id and outcome."""
        found: list[tuple[int, Outcome]] = []
        for event in self.at_client:
            if isinstance(event, DispositionReceived):
                assert event.outcome is not None
                found += [(int(one.delivery_id), event.outcome) for one in event.deliveries]
        return found

    def confirmations(self) -> list[SettlementConfirmed]:
        return [event for event in self.at_client if isinstance(event, SettlementConfirmed)]
