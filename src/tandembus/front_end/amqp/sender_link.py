"""A link on which a client sends: transfers become send operations, commits become dispositions.

Nobody waits per message. What a commit accepted on this link is gathered into ranges and written once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE, Outcome, rejected_state, transactional_state
from tandembus.amqp.encoding.descriptors import TRANSACTIONAL_STATE
from tandembus.amqp.engine.events import DeliveryReceived
from tandembus.amqp.engine.link import IncomingLink
from tandembus.broker.operations import SendOperation, SendReply
from tandembus.broker.transfer_destination import set_destination
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, MessageTooLarge
from tandembus.front_end.amqp.conditions import amqp_error
from tandembus.front_end.amqp.link_host import Flushable, LinkHost
from tandembus.front_end.amqp.transactions import TransactionParty
from tandembus.interconnect.number_ranges import NumberRanges
from tandembus.interconnect.traffic import Traffic
from tandembus.message import (
    BATCH_FORMAT,
    HAS_DELIVERY_ANNOTATIONS,
    Message,
    compared,
    delivery_annotations_at,
    parse_message,
)
from tandembus.message_sections import split_batch
from tandembus.metering.slot import MeterSlot, operations_for
from tandembus.pair_view.watches import SendWatch


@final
class SendChecks:
    """The entity's and the namespace's limits on what may be sent, in plain numbers."""

    __slots__ = (
        "ignores_key_case",
        "max_batch_messages",
        "max_header_bytes",
        "max_key_characters",
        "max_message_bytes",
        "max_properties_bytes",
    )

    def __init__(
        self,
        max_message_bytes: i64,
        max_header_bytes: i64,
        max_properties_bytes: i64,
        max_batch_messages: i64,
        max_key_characters: i64,
        ignores_key_case: bool = False,
    ) -> None:
        self.ignores_key_case: bool = ignores_key_case
        self.max_message_bytes: i64 = max_message_bytes
        self.max_header_bytes: i64 = max_header_bytes
        self.max_properties_bytes: i64 = max_properties_bytes
        self.max_batch_messages: i64 = max_batch_messages
        self.max_key_characters: i64 = max_key_characters

    def check(self, message: Message) -> None:
        if message.wire_size > self.max_message_bytes:
            raise self.too_large(message.wire_size)
        header_bytes = message.properties_end
        if message.flags & HAS_DELIVERY_ANNOTATIONS:
            header_bytes += i64(len(message.sections)) - delivery_annotations_at(message)
        if header_bytes > self.max_header_bytes:
            raise InvalidArgument(f"The message's annotations and properties exceed {self.max_header_bytes} bytes.")
        if message.application_end - message.properties_end > self.max_properties_bytes:
            raise InvalidArgument(f"The application properties exceed {self.max_properties_bytes} bytes.")
        session_id = message.session_id
        if session_id:
            partition_key = message.partition_key
            if partition_key is not None and partition_key != session_id:
                self._check_case(session_id, partition_key)

    def _check_case(self, session_id: str, partition_key: str) -> None:
        """Of two that differ, but perhaps in case only."""
        if compared(partition_key, self.ignores_key_case) != compared(session_id, self.ignores_key_case):
            raise InvalidOperation("SessionId and PartitionKey are both set and differ; they must be equal.")

    def too_large(self, size_bytes: i64) -> MessageTooLarge:
        """`size_bytes`: 0 where nobody has counted to the end."""
        size = f"{int(size_bytes)} bytes" if size_bytes > 0 else f"more than {int(self.max_message_bytes)} bytes"
        return MessageTooLarge(
            f"The received message (delivery size: {size}) exceeds the limit "
            f"({self.max_message_bytes} bytes) currently allowed on the link."
        )

    def parse(self, payload: bytes, message_format: i64) -> list[Message]:
        """The messages of one transfer, checked. Raises a BusError for the whole of it."""
        if len(payload) > self.max_message_bytes:
            raise self.too_large(len(payload))
        if message_format != BATCH_FORMAT:
            message = parse_message(payload, self.max_key_characters)
            self.check(message)
            return [message]
        parts = split_batch(payload)
        if len(parts) > self.max_batch_messages:
            raise InvalidArgument(f"A batch may hold at most {self.max_batch_messages} messages.")
        messages: list[Message] = []
        for part in parts:
            message = parse_message(part, self.max_key_characters)
            self.check(message)
            messages.append(message)
        return messages


@final
class SendMeter:
    """Counts accepted sends message by message; pings under a reason of their own. What an outage does to them is told
    to `watch`."""

    __slots__ = ("normal", "pings", "watch")

    def __init__(self, normal: MeterSlot, pings: MeterSlot, watch: SendWatch | None = None) -> None:
        self.normal: Final = normal
        self.pings: Final = pings
        self.watch: Final = watch

    def count(self, operation: SendOperation) -> None:
        messages = operation.messages
        watch = self.watch
        if messages[0].is_ping:
            self.pings.add(len(messages), len(messages), int(operation.size_bytes))
            if watch is not None:
                watch.ping_accepted(messages)
            return
        if watch is not None:
            watch.accepted(messages)
        units = 0
        for message in messages:
            units += operations_for(int(message.wire_size))
        self.normal.add(len(messages), units, int(operation.size_bytes))

    def refused(self, operation: SendOperation, error: BusError) -> None:
        """Costs nothing; whoever watches is told."""
        watch = self.watch
        if watch is not None:
            watch.refused(operation.messages, error)


@final
class _SendAnswers(SendReply):
    def __init__(self, link: SenderLink) -> None:
        self.link: Final = link

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        self.link.answered(operation, error)


@final
class _TransactionalSends(SendReply):
    """What was sent in a transaction is answered before; it is counted when it is carried out."""

    def __init__(self, meter: SendMeter) -> None:
        self.meter: Final = meter

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        if error is None:
            self.meter.count(operation)
        else:
            self.meter.refused(operation, error)


@final
class SenderLink(Flushable):
    def __init__(
        self,
        link: IncomingLink,
        host: LinkHost,
        traffic: Traffic,
        checks: SendChecks,
        meter: SendMeter,
        credit: i64,
    ) -> None:
        self.link: Final = link
        self.is_open: bool = True
        self.activity: i64 = 0
        self._host: Final = host
        self._traffic: Final = traffic
        self._checks: SendChecks = checks
        self._meter: Final = meter
        self._credit: i64 = credit
        self._answers: SendReply = _SendAnswers(self)
        self._in_transactions: Final = _TransactionalSends(meter)
        self.party: TransactionParty | None = None
        """How it takes part in transactions, where it can."""
        self.destination: str = ""
        """The entity that its messages are for, where that is not the link's own."""
        self.destination_in_transactions: str = ""
        """The same of what is sent in transactions, which may go by way of another entity."""
        self._accepted: Final = NumberRanges()
        self._is_gathering: bool = False

    def end(self) -> None:
        """The link is over. Sends that are under way have their own hold on what answers them, and through it on the
        link."""
        self.is_open = False
        self._answers = self._in_transactions

    def change_checks(self, checks: SendChecks) -> None:
        self._checks = checks

    def received(self, event: DeliveryReceived) -> None:
        """Stage what came; a refusal is answered at once and stops nothing behind it."""
        self.activity += 1
        state = event.state
        if state is not None and state.code == TRANSACTIONAL_STATE:
            self._gather_in(state, event)
            return
        delivery_id: i64 = -1 if event.settled else event.delivery_id
        try:
            operation = self._operation(event, self._answers, delivery_id, self.destination)
        except BusError as error:
            self.refuse(delivery_id, error)
            return
        try:
            self._traffic.send(operation)
        except BusError as error:
            self._refuse_operation(operation, error)
            return
        self._host.take(operation.size_bytes)

    def _operation(
        self, event: DeliveryReceived, reply: SendReply, delivery_id: i64, destination: str
    ) -> SendOperation:
        messages = self._checks.parse(event.payload, event.message_format)
        if destination:
            for message in messages:
                set_destination(message, destination)
        return SendOperation(messages, len(event.payload), reply, delivery_id, destination != "")

    def _gather_in(self, state: Outcome, event: DeliveryReceived) -> None:
        """Keep it for the transaction's discharge. The answer comes at once: accepted, if the transaction is."""
        delivery_id: i64 = -1 if event.settled else event.delivery_id
        transactions = self._host.transactions
        try:
            transaction = transactions.find_in(state)
            party = self.party
            if party is None:
                raise InvalidOperation("This link takes no part in transactions.")
            operation = self._operation(event, self._in_transactions, -1, self.destination_in_transactions)
            transaction.send(party, operation)
        except BusError as error:
            transactions.doom(state, error)
            self.refuse(delivery_id, error)
            return
        self._write_accepted()
        if delivery_id >= 0:
            answer = transactional_state(transaction.txn_id, ACCEPTED_STATE)
            self.link.session.settle(int(delivery_id), int(delivery_id), answer)
        self._gather()

    def too_large(self, delivery_id: i64, state: Outcome | None, size_bytes: i64) -> None:
        error = self._checks.too_large(size_bytes)
        self._host.transactions.doom(state, error)
        self.refuse(delivery_id, error)

    def refuse(self, delivery_id: i64, error: BusError) -> None:
        target = self.link.target
        self._host.refused(error, f"a message to '{target.address if target is not None else ''}'", self.link.name)
        if self.is_open and delivery_id >= 0:
            self._write_accepted()
            state = rejected_state(amqp_error(error, self._host.engine.peer_hostname))
            self.link.session.settle(int(delivery_id), int(delivery_id), state)
        self._gather()

    def _refuse_operation(self, operation: SendOperation, error: BusError) -> None:
        if operation.messages[0].is_ping:
            self._host.pings.refused_count += 1
        self._meter.refused(operation, error)
        self.refuse(operation.delivery_id, error)

    def answered(self, operation: SendOperation, error: BusError | None) -> None:
        self._host.end_taking(operation.size_bytes)
        if error is not None:
            self._refuse_operation(operation, error)
            return
        self._meter.count(operation)
        delivery_id = operation.delivery_id
        if delivery_id >= 0:
            self._accepted.add(delivery_id)
        self._gather()

    def _gather(self) -> None:
        if not self._is_gathering:
            self._is_gathering = True
            self._host.answer(self)

    def _write_accepted(self) -> None:
        for first, last in self._accepted.take():
            if self.is_open:
                self.link.session.settle(first, last, ACCEPTED_STATE)

    def write_answers(self) -> None:
        self._is_gathering = False
        self._write_accepted()
        self.top_up()

    def top_up(self) -> None:
        """Credit is given back when half of it is used up."""
        if self.is_open and self.link.credit <= self._credit // 2:
            self.link.grant(int(self._credit))
