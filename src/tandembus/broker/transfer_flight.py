"""Messages on their way to a fragment in another store: sent as one operation, settled here after its answer.

While they are on their way they are held, so nobody else takes them. Without an answer, whatever the reason, they are
given back and sent again: the fragment that takes them knows what it has. One operation is on its way to a fragment at
a time, and it is taken whole or not at all; that is what keeps strict order when something in the middle is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.moving import give_up_transfer, hold_for_transfer, is_held_for_transfer, settle_transferred
from tandembus.broker.operations import CallbackSendReply, SendOperation, TransferSource
from tandembus.broker.transfer_job import Job, Target
from tandembus.broker.transfer_port import Outlet
from tandembus.errors import BusError
from tandembus.message import Message


class Flight:
    def __init__(
        self,
        job: Job,
        target: Target,
        outlet: Outlet,
        when_failed: Callable[[Flight, BusError], None],
        when_over: Callable[[Job], None],
    ) -> None:
        """`when_failed` is told when the messages are free again; `when_over` when nothing of the job is on its way."""
        self.target: Final = target
        self.messages: list[Message] = []
        """As they are here."""
        self._arriving: list[Message] = []
        self._locks: list[MessageLock] = []
        self._job = job
        self._outlet = outlet
        self._when_failed = when_failed
        self._when_over = when_over

    def add(self, message: Message, arriving: Message) -> None:
        """`arriving` is the form in which it arrives."""
        self.messages.append(message)
        self._arriving.append(arriving)

    def keep_below(self, number: int) -> bool:
        """Leave out what is not below this number. Returns whether that was anything."""
        count = sum(message.number < number for message in self.messages)
        is_cut = count < len(self.messages)
        del self.messages[count:], self._arriving[count:]
        return is_cut

    def start(self) -> None:
        """What has happened to the messages since they were read decides which of them leave."""
        job = self._job
        held = [hold_for_transfer(job.fragment, job.lane, message) for message in self.messages]
        self.messages = [message for message, lock in zip(self.messages, held, strict=True) if lock is not None]
        self._arriving = [message for message, lock in zip(self._arriving, held, strict=True) if lock is not None]
        self._locks = [lock for lock in held if lock is not None]
        if self.messages:
            job.moving_count += len(self.messages)
            self._send()

    def _send(self) -> None:
        job = self._job
        source = TransferSource(job.fragment.key, job.lane, [int(message.number) for message in self.messages])
        size = sum(len(message.sections) for message in self._arriving)
        operation = SendOperation(self._arriving, size, CallbackSendReply(self._answered), 0, source=source)
        try:
            self._outlet.send(operation)
        except BusError as error:
            self._answered(operation, error)

    def _answered(self, _operation: SendOperation, error: BusError | None) -> None:
        fragment = self._job.fragment
        if not is_held_for_transfer(fragment, self._locks[0]):
            # Their store was opened anew meanwhile: what became of them is found out by sending them again.
            self._end(len(self._locks))
        elif error is None:
            self._job.took_all(self.target)
            for lock, message in zip(self._locks, self.messages, strict=True):
                settle_transferred(fragment, lock, CallbackSettleReply(self._when_settled(message)))
        else:
            for lock in self._locks:
                give_up_transfer(fragment, lock)
            self._when_failed(self, error)
            self._end(len(self._locks))

    def _when_settled(self, message: Message) -> Callable[[MessageLock, BusError | None], None]:
        def settled(_lock: MessageLock, error: BusError | None) -> None:
            if error is None:
                self._job.note_moved(self.target, len(message.sections))
            self._end(1)

        return settled

    def _end(self, count: int) -> None:
        job = self._job
        job.moving_count -= count
        if job.moving_count == 0:
            job.is_asked_again = True
            self._when_over(job)
