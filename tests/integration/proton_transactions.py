"""Qpid Proton's transactions, with calls that wait until the answer is there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tandembus.security.sas import ROOT_POLICY
from tests.integration.bus import Bus
from tests.integration.serving import KEY

proton = pytest.importorskip("proton", reason="python-qpid-proton is not installed: it needs a C compiler")
reactor = pytest.importorskip("proton.reactor")
utils = pytest.importorskip("proton.utils")

WITHIN_S = 20.0
TRANSACTIONAL = 0x34


class Via:
    """Option of a sender: its messages are for another entity."""

    def __init__(self, destination: str) -> None:
        self._destination = destination

    def test(self, link: Any) -> bool:
        return bool(link.is_sender)

    def apply(self, sender: Any) -> None:
        sender.properties = {proton.symbol("com.microsoft:transfer-destination-address"): self._destination}


class Outcomes:
    """What the coordinator answered; Proton calls these."""

    def __init__(self) -> None:
        self.transaction: Any = None
        self.outcome = ""
        self.condition: str | None = None

    def _ended(self, outcome: str, event: Any) -> None:
        self.outcome = outcome
        condition = event.delivery.remote.condition
        self.condition = condition.name if condition is not None else None

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_declare_failed(self, event: Any) -> None:
        self._ended("not declared", event)

    def on_transaction_committed(self, event: Any) -> None:
        self._ended("committed", event)

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._ended("rolled back", event)

    def on_transaction_aborted(self, event: Any) -> None:
        self._ended("aborted", event)


class ProtonTransaction:
    def __init__(self, client: ProtonClient, settle_before_discharge: bool) -> None:
        self._client = client
        self.outcomes = Outcomes()
        # The control link keeps the handler it was made with: each transaction is given its own here.
        self._transaction = client.connection.container.declare_transaction(
            client.connection.conn, self.outcomes, settle_before_discharge
        )
        client.wait(lambda: self.outcomes.transaction is not None or self.outcomes.outcome != "")

    def send(self, sender: Any, body: str, session_id: str | None = None) -> Any:
        """Returns the settled delivery."""
        delivery = self._transaction.send(sender.link, self._client.message(body, session_id))
        self._client.wait(lambda: delivery.settled)
        return delivery

    def settle(self, delivery: Any, state: int) -> None:
        """Returns when the broker has said what will become of it."""
        if state == proton.Delivery.ACCEPTED:
            self._transaction.accept(delivery)
        else:
            self._transaction.update(delivery, proton.ulong(state))
        if not self._transaction.settle_before_discharge:
            self._client.wait(lambda: delivery.remote_state == TRANSACTIONAL or delivery.settled)

    def accept(self, delivery: Any) -> None:
        self.settle(delivery, proton.Delivery.ACCEPTED)

    def commit(self) -> str:
        self._transaction.commit()
        return self._ended()

    def abort(self) -> str:
        self._transaction.abort()
        return self._ended()

    def _ended(self) -> str:
        self._client.wait(lambda: self.outcomes.outcome != "")
        return self.outcomes.outcome


class ProtonClient:
    def __init__(self, bus: Bus) -> None:
        self.connection = utils.BlockingConnection(
            f"amqp://localhost:{bus.running.port}",
            timeout=WITHIN_S,
            user=ROOT_POLICY,
            password=KEY,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        self._receivers: list[Any] = []
        self._key = bus.shape.key

    def message(self, body: str, session_id: str | None = None) -> Any:
        """Where a transaction needs a key (P16), it is the session, or the same for all."""
        message = proton.Message(body=body, id=body)
        if session_id is not None:
            message.group_id = session_id
        elif self._key is not None:
            message.annotations = {proton.symbol("x-opt-partition-key"): self._key}
        return message

    def wait(self, is_over: Callable[[], bool]) -> None:
        self.connection.wait(is_over)

    def declare(self, settle_before_discharge: bool = False) -> ProtonTransaction:
        return ProtonTransaction(self, settle_before_discharge)

    def end_control_link(self) -> None:
        control = self.connection.conn._txn_ctrl
        control.close()
        self.wait(lambda: bool(control.state & proton.Endpoint.REMOTE_CLOSED))
        self.connection.conn._txn_ctrl = None

    def sender(self, queue: str, **options: Any) -> Any:
        return self.connection.create_sender(queue, name=uuid.uuid4().hex, **options)

    def receiver(self, queue: str, credit: int, session_id: str | None = None) -> Any:
        options = None
        if session_id is not None:
            options = reactor.Filter({proton.symbol("com.microsoft:session-filter"): session_id})
        return self.connection.create_receiver(queue, credit=credit, name=uuid.uuid4().hex, options=options)

    def receive(self, queue: str, count: int, session_id: str | None = None) -> tuple[list[str], list[Any]]:
        """Bodies and unsettled deliveries; the receiver stays, without credit."""
        messages, deliveries = self.receive_messages(queue, count, session_id)
        return [message.body for message in messages], deliveries

    def receive_messages(self, queue: str, count: int, session_id: str | None = None) -> tuple[list[Any], list[Any]]:
        """The credit is exactly that: Proton's own `receive` gives more, and would take what others wait for."""
        receiver = self.receiver(queue, 0, session_id)
        self._receivers.append(receiver)
        receiver.link.flow(count)
        fetcher = receiver.fetcher
        self.wait(lambda: len(fetcher.incoming) == count)
        return [fetcher.pop() for _ in range(count)], list(fetcher.unsettled)

    def close(self) -> None:
        self.connection.close()
