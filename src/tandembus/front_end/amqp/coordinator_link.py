"""The control link of transactions: a client declares them on it and discharges them (specification 4.3).

What a transaction is made of comes on other links; here it begins, and here it is carried out or forgotten. When the
control link ends, whoever ended it, so do its transactions.
"""

from __future__ import annotations

from tandembus.amqp.encoding.descriptors import COORDINATOR
from tandembus.amqp.encoding.transactions import (
    LOCAL_TRANSACTIONS,
    MULTI_SSNS_PER_TXN,
    MULTI_TXNS_PER_SSN,
    Declare,
    Discharge,
    read_control_message,
)
from tandembus.amqp.engine import (
    ACCEPTED_STATE,
    DeliveryReceived,
    IncomingLink,
    Terminus,
    declared_state,
    rejected_state,
)
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    InvalidOperation,
    NotSupported,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
    TransactionNotFound,
    TransactionRolledBack,
    TransactionTimedOut,
)
from tandembus.front_end.amqp.conditions import amqp_error
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.front_end.amqp.transactions import Transaction, Transactions

CONTROL_CREDIT = 100
MAX_CONTROL_BYTES = 1024
"""Declare and discharge take a few dozen."""
CAPABILITIES = [LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN, MULTI_SSNS_PER_TXN]


class CoordinatorLink:
    def __init__(self, link: IncomingLink, host: LinkHost, transactions: Transactions) -> None:
        self._link = link
        self._host = host
        self._transactions = transactions

    def start(self) -> None:
        """Answer the attach with what can be done here, whatever the client hoped for."""
        self._link.accept(MAX_CONTROL_BYTES, target=Terminus(COORDINATOR, capabilities=CAPABILITIES))
        self._link.grant(CONTROL_CREDIT)

    def end(self) -> None:
        self._transactions.forget_all_of(self)

    def received(self, event: DeliveryReceived) -> None:
        if self._link.credit <= CONTROL_CREDIT // 2:
            self._link.grant(CONTROL_CREDIT)
        delivery_id = -1 if event.settled else int(event.delivery_id)
        try:
            request = read_control_message(event.payload)
            if isinstance(request, Declare):
                self._answer(delivery_id, self._declare(request, delivery_id))
            else:
                self._discharge(request, delivery_id)
        except BusError as error:
            self._reject(delivery_id, error)

    def _declare(self, request: Declare, delivery_id: int) -> bytes:
        if request.has_global_id:
            raise NotSupported("Distributed transactions are not available: declare without a global id.")
        if delivery_id < 0:
            return b""  # nobody would ever learn the transaction's id
        return declared_state(self._transactions.declare(self).txn_id)

    def _discharge(self, request: Discharge, delivery_id: int) -> None:
        try:
            transaction = self._transactions.find(request.txn_id)
        except TransactionTimedOut:
            if not request.fail:
                raise
            self._answer(delivery_id, ACCEPTED_STATE)  # it is rolled back, as is asked for
            return
        if transaction.owner is not self:
            raise TransactionNotFound("The transaction was declared on another control link.")
        if request.fail:
            self._transactions.forget(transaction)
            self._answer(delivery_id, ACCEPTED_STATE)
            return
        try:
            transaction.choose_fragment()
        except InvalidOperation:
            self._transactions.forget(transaction)
            raise
        self._carry_out(transaction, delivery_id)

    def _carry_out(self, transaction: Transaction, delivery_id: int) -> None:
        """One operation on one fragment. Its bytes count as unacknowledged: a client that does not wait for the answers
        is not read for a while."""
        size = int(transaction.size_bytes)
        self._transactions.begin_discharge(transaction)
        self._host.unacknowledged_bytes += size

        def discharged(_operation: TransactionOperation | None, error: BusError | None) -> None:
            self._host.unacknowledged_bytes -= size
            self._transactions.end_discharge(transaction, error is None)
            if error is None:
                self._answer(delivery_id, ACCEPTED_STATE)
            else:
                self._reject(delivery_id, _rollback_of(error))

        try:
            transaction.check()
            traffic = transaction.traffic
            if traffic is None:
                discharged(None, None)
            else:
                traffic.discharge(transaction.operation(CallbackTransactionReply(discharged)))
        except BusError as error:
            discharged(None, error)

    def _answer(self, delivery_id: int, state: bytes) -> None:
        if delivery_id >= 0 and self._link.is_attached:
            self._link.session.settle(delivery_id, delivery_id, state)
            self._host.touch()

    def _reject(self, delivery_id: int, error: BusError) -> None:
        self._answer(delivery_id, rejected_state(amqp_error(error, self._host.engine.peer_hostname)))


def _rollback_of(error: BusError) -> BusError:
    """Why it was rolled back is in the text. Only when nobody knows whether it was, that is said instead."""
    if isinstance(error, TransactionRolledBack):
        return error
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(f"Whether the transaction was carried out is unknown: {error}")
    if isinstance(error, StoreUnavailable) and not isinstance(error, StoreFull | FragmentUnavailable):
        return StoreUnavailable(f"Whether the transaction was carried out is unknown: {error}")
    return TransactionRolledBack(f"The transaction is rolled back: {error}")
