# Generated from tandembus/pairing/sdk_ports.py by tools/generate_sync.py: change that, not this.
"""The syphon's ports on the SDK's clients: for `enable_syphon`, in the application's own process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, final
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
)

from tandembus.pairing.aliases import IS_HOME
from tandembus.pairing.errors import PairingError
from tandembus.pairing.failures import is_the_messages_fault
from tandembus.pairing.sync.links import CLOSE_PATIENCE_S
from tandembus.pairing.sync.runtime import Attempt, GivenUp, Mutex, OutOfTime, Runtime, Turns
from tandembus.pairing.sdk import is_without_connection, marked_as_syphon, not_found_in, without_retries
from tandembus.pairing.sdk_frames import Arrival, abandoned, accepted, check_sdk, dead_lettered, deferred, released
from tandembus.pairing.sync.sdk_link import SdkLink
from tandembus.pairing.sdk_payloads import Shown, fill, show_payloads, shown, translated
from tandembus.pairing.syphon_messages import Delivery, LocksLost
from tandembus.pairing.syphon_rules import PrimaryUnreachable, Verdict, verdict_on
from tandembus.pairing.syphon_senders import SenderPool
from tandembus.pairing.sync.syphon_tokens import DEFERRED_AT_ONCE, by_token, ours_and_lost

T = TypeVar("T")
MAX_SENDERS: Final = 64
NOT_OURS: Final = (MessageNotFoundError, MessageLockLostError)
"""What the service says to lock tokens and sequence numbers that it knows nothing of any more."""
ANSWER_MARGIN_S: Final = 30.0
"""How long the SDK may take for a call beyond what it was asked to wait."""
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
DEFERRED: Final = "defered"
SUSPENDED: Final = "suspended"
"""The service's words, where messages are settled by their lock tokens."""
_log: Final = logging.getLogger("tandembus.pairing")

SDK_REFUSALS: Final[Mapping[type[BaseException], Verdict]] = {
    PrimaryUnreachable: Verdict.UNREACHABLE,
    MessagingEntityNotFoundError: Verdict.GONE,
    MessageSizeExceededError: Verdict.REFUSED,
}


class Origin(NamedTuple):
    """What a delivery is settled by. `link` is the one it came on, whose delivery ids mean nothing on any other; None
    if it was received by its sequence number, `beside` that link: then its lock token does."""

    arrival: Arrival | None = None
    link: SdkLink | None = None
    token: UUID | None = None
    beside: SdkLink | None = None

    @property
    def lock_token(self) -> UUID | None:
        return self.token if self.arrival is None else self.arrival.lock_token


class SdkBacklog:
    """One backlog queue on the secondary."""

    failures: tuple[type[Exception], ...] = (
        AzureError,
        OSError,
        ValueError,
        RuntimeError,
        GivenUp,
        PairingError,
        LocksLost,
    )

    def __init__(self, secondary: ServiceBusClient, queue: str, runtime: Runtime) -> None:
        self.queue = queue
        self._secondary: Final = secondary
        self._runtime: Final = runtime
        self._receiver: ServiceBusReceiver | None = None
        self._link: SdkLink | None = None
        self._mutex: Final = Mutex()
        self._is_interrupted = False
        self._is_woken = False

    def open(self) -> None:
        """It opens itself; this is to find out whether it can. `UnknownSdk`: not with this version of the SDK."""
        check_sdk()
        self._open()

    def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        receiver = self._open()
        link = self._link
        if self._is_interrupted or link is None:
            return []
        poll = partial(link.receive, max_count, wait_s, self._is_over)
        arrivals = self._call(receiver, poll, wait_s + ANSWER_MARGIN_S)
        self._is_woken = False
        return [Delivery(each.payload, Origin(each, link)) for each in arrivals]

    def interrupt(self) -> None:
        self._is_interrupted = True

    def wake(self) -> None:
        self._is_woken = True

    def has_lost(self, deliveries: Sequence[Delivery]) -> bool:
        links = {each.origin.link or each.origin.beside for each in deliveries}
        return any(link.is_lost for link in links)

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, accepted, COMPLETED)

    def release(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, released, ABANDONED)

    def abandon(self, deliveries: Sequence[Delivery], are_home: bool) -> None:
        self._settle(deliveries, partial(abandoned, {IS_HOME: True} if are_home else None), ABANDONED)

    def defer(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, deferred, DEFERRED)

    def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None:
        details = {"deadletter-reason": reason, "deadletter-description": description}
        self._settle(deliveries, partial(dead_lettered, reason, description), SUSPENDED, details)

    def renew(self, deliveries: Sequence[Delivery]) -> None:
        self._check_link()
        receiver = self._receiver
        if receiver is None:
            raise LocksLost(deliveries)
        ours, lost = ours_and_lost(deliveries, self._link)
        lost += by_token(ours, partial(self._on_tokens, receiver, partial(_renew, receiver)), NOT_OURS)
        if lost:
            raise LocksLost(lost)

    def receive_deferred(self, sequence_numbers: Sequence[int]) -> Sequence[Delivery]:
        self._open()
        link = self._link
        found: list[Shown] = []
        for first in range(0, len(sequence_numbers), DEFERRED_AT_ONCE):
            found += self._receive_deferred(sequence_numbers[first : first + DEFERRED_AT_ONCE])
        locked = [each for each in found if each.lock_token is not None]
        return [Delivery(each.payload, Origin(token=each.lock_token, beside=link)) for each in locked]

    def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        receiver = self._open()
        call = partial(receiver.peek_messages, max_message_count=max_count, sequence_number=from_number)
        return [each.payload for each in shown(self._call(receiver, call))]

    def close(self) -> None:
        receiver, self._receiver, self._link = self._receiver, None, None
        if receiver is not None:
            self._close(receiver)

    def _is_over(self) -> bool:
        return self._is_interrupted or self._is_woken

    def _open(self) -> ServiceBusReceiver:
        """Raises once what became of a link that was lost since the last call, or that the SDK replaced by itself: then
        all locks are gone, and nobody must settle by what they were known by."""
        self._check_link()
        receiver = self._receiver
        if receiver is None:
            receiver = self._secondary.get_queue_receiver(self.queue)
            try:
                link = self._open_link(receiver)
            except BaseException:
                self._runtime.start(partial(self._close, receiver))
                raise
            with self._mutex:
                self._receiver, self._link = receiver, link
        return receiver

    def _open_link(self, receiver: ServiceBusReceiver) -> SdkLink:
        show_payloads(receiver)
        without_retries(receiver)
        Attempt(self._runtime).run(receiver.__enter__, ANSWER_MARGIN_S)
        return SdkLink(receiver, self._runtime.clock)

    def _check_link(self) -> None:
        with self._mutex:
            receiver, link = self._receiver, self._link
        if link is not None and link.is_lost:
            self._drop(receiver)
            raise MessageLockLostError(message="The locks went with their link.")

    def _settle(
        self,
        deliveries: Sequence[Delivery],
        state: Callable[[], Any],
        word: str,
        details: Mapping[str, str] | None = None,
    ) -> None:
        receiver = self._open()
        ours, lost = ours_and_lost(deliveries, self._link)
        on_link = [each for each in ours if each.origin.link is not None]
        lost += self._settle_on_link(receiver, on_link, state())
        by_number = [each for each in ours if each.origin.link is None]
        settle = partial(self._on_tokens, receiver, partial(_settle, receiver, word, details))
        lost += by_token(by_number, settle, NOT_OURS)
        if lost:
            raise LocksLost(lost)

    def _settle_on_link(
        self, receiver: ServiceBusReceiver, deliveries: Sequence[Delivery], state: Any
    ) -> list[Delivery]:
        """Returns those whose locks were lost."""
        if not deliveries:
            return []
        link = deliveries[0].origin.link
        settle = partial(link.settle, [each.origin.arrival for each in deliveries], state)
        lost_ids = self._call(receiver, settle)
        return [each for each in deliveries if each.origin.arrival.delivery_id in lost_ids]

    def _on_tokens(
        self,
        receiver: ServiceBusReceiver,
        do: Callable[[list[UUID]], None],
        tokens: list[UUID],
    ) -> None:
        self._call(receiver, partial(do, tokens))

    def _receive_deferred(self, numbers: Sequence[int]) -> list[Shown]:
        """The service answers with all of them or none: if one is not there, they are asked for one by one."""
        receiver = self._open()
        try:
            return shown(self._call(receiver, partial(receiver.receive_deferred_messages, list(numbers))))
        except NOT_OURS:
            if len(numbers) == 1:
                return []
        found: list[Shown] = []
        for number in numbers:
            found += self._receive_deferred([number])
        return found

    def _call(
        self, receiver: ServiceBusReceiver, call: Callable[[], T], limit_s: float = ANSWER_MARGIN_S
    ) -> T:
        """On this receiver. If it fails, only this one is given up: there may be another by then."""
        try:
            return Attempt(self._runtime).run(call, limit_s)
        except NOT_OURS:
            raise
        except Exception:
            self._drop(receiver)
            raise

    def _drop(self, receiver: ServiceBusReceiver | None) -> None:
        """After an error nobody knows in which state it is. Locks are renewed beside other calls: whoever comes second
        finds another receiver, or none."""
        with self._mutex:
            if receiver is None or receiver is not self._receiver:
                return
            self._receiver, self._link = None, None
        self._runtime.start(partial(self._close, receiver))

    def _close(self, receiver: ServiceBusReceiver) -> None:
        try:
            Attempt(self._runtime).run(receiver.close, CLOSE_PATIENCE_S)
        except Exception as error:
            _log.debug("a receiver of %s was not closed in order: %r", self.queue, error)


def _renew(receiver: Any, tokens: list[UUID]) -> None:
    try:
        receiver._renew_locks(*tokens)
    except AzureError:
        raise
    except Exception as error:
        raise translated(receiver, error) from error


def _settle(receiver: Any, word: str, details: Mapping[str, str] | None, tokens: list[UUID]) -> None:
    try:
        receiver._settle_message_via_mgmt_link(word, tokens, dead_letter_details=details)
    except AzureError:
        raise
    except Exception as error:
        raise translated(receiver, error) from error


@final
class _Destination:
    """A sender, and whose turn it is: the SDK's senders do one thing at a time."""

    def __init__(self, sender: ServiceBusSender, runtime: Runtime) -> None:
        self.sender: Final = sender
        self.turns: Final = Turns(runtime)
        self.is_broken = False
        """After an error nobody knows in which state it is."""


class SdkPrimary:
    """The paired primary: a sender for each destination in use."""

    def __init__(
        self, primary: ServiceBusClient, send_timeout_s: float, runtime: Runtime, max_senders: int = MAX_SENDERS
    ) -> None:
        self._primary: Final = primary
        self._send_timeout_s: Final = send_timeout_s
        self._runtime: Final = runtime
        self._destinations: Final = SenderPool(self._open, max_senders, Mutex())
        self._taken_count = 0

    def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """The queues of the backlog take turns."""
        while not self._send_if_sound(path, payloads):
            pass

    def verdict_on(self, error: Exception) -> Verdict:
        if isinstance(error, AzureError) and is_the_messages_fault(error):
            return Verdict.REFUSED
        return verdict_on(error, SDK_REFUSALS)

    def close(self) -> None:
        for destination in self._destinations.clear():
            self._close(destination.sender)

    def _open(self, path: str) -> _Destination:
        sender = self._primary.get_queue_sender(path)
        without_retries(sender)
        marked_as_syphon(sender)
        return _Destination(sender, self._runtime)

    def _send_if_sound(self, path: str, payloads: Sequence[bytes]) -> bool:
        """False if somebody broke the sender while we waited for our turn: then there is another one."""
        destination = self._destinations.borrow(path)
        try:
            # Half of the time at most: what is waited for and what is sent must fit into the time of a lock.
            if not destination.turns.take(self._send_timeout_s / 2):
                raise OutOfTime
            try:
                return not destination.is_broken and self._send(destination, payloads)
            finally:
                destination.turns.give_back()
        finally:
            for unused in self._destinations.give_back(path, destination, destination.is_broken):
                self._runtime.start(partial(self._close, unused.sender))

    def _send(self, destination: _Destination, payloads: Sequence[bytes]) -> bool:
        """Each sender has a connection of its own. That one was lost says nothing about the primary as long as others
        send on theirs."""
        taken_before = self._taken_count
        try:
            call = partial(_send_batch, destination.sender, payloads)
            Attempt(self._runtime).run(call, self._send_timeout_s)
        except BaseException as error:
            destination.is_broken = True
            description = not_found_in(error)
            if description is not None:
                raise MessagingEntityNotFoundError(message=description) from error
            if is_without_connection(error) and self._taken_count == taken_before:
                raise PrimaryUnreachable(str(error)) from error
            raise
        self._taken_count += 1
        return True

    def _close(self, sender: ServiceBusSender) -> None:
        try:
            Attempt(self._runtime).run(sender.close, CLOSE_PATIENCE_S)
        except Exception as error:
            _log.debug("a sender of %s was not closed in order: %r", sender.entity_name, error)


def _send_batch(sender: ServiceBusSender, payloads: Sequence[bytes]) -> None:
    batch = sender.create_message_batch()
    fill(batch, payloads)
    sender.send_messages(batch)
