"""Messages on their way to a fragment in another store: sent as one operation, settled here after its answer.

While they are on their way they are held, so nobody else takes them. When nobody knows whether they arrived, they stay
held and stay bound to that fragment, whatever the settings say by then: they are sent to it again, and it knows what it
has. Only its word, or the end of the entity, sets them free: another one by the same name never had them. One operation
is on its way to a fragment at a time, and it is taken whole or not at all; that is what keeps strict order when
something in the middle is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.moving import give_up_transfer, hold_for_transfer, is_held_for_transfer, settle_transferred
from tandembus.broker.operations import CallbackSendReply, SendOperation, TransferSource
from tandembus.broker.transfer_job import Job, Target
from tandembus.broker.transfer_port import Outlet, is_for_good
from tandembus.errors import (
    BusError,
    EntityNotFound,
    FragmentUnavailable,
    OperationTimeout,
    StoreFull,
    StoreUnavailable,
)
from tandembus.message import Message


class Flight:
    def __init__(
        self,
        job: Job,
        target: Target,
        fragment_key: int,
        outlet: Outlet,
        when_failed: Callable[[Flight, BusError], None],
        when_over: Callable[[Job], None],
    ) -> None:
        """`fragment_key` is the destination's: the target alone may be another entity by the same name later.
        `when_failed` is told when the messages were not taken, and are free again, or when that is in doubt;
        `when_over` when nothing of the job is on its way."""
        self.target: Final = target
        self.fragment_key: Final = fragment_key
        self.messages: list[Message] = []
        """As they are here."""
        self.is_in_doubt = False
        """They may have arrived."""
        self.is_passed_by = False
        """Messages for the same fragment were passed by meanwhile: they are next when this is over."""
        self.sent_count = 0
        """The first so many were sent the last time."""
        self._arriving: list[Message] = []
        self._locks: list[MessageLock] = []
        self._job = job
        self._outlet = outlet
        self._operation: SendOperation | None = None
        """Whose answer is waited for."""
        self._settling_count = 0
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

    # Sending.

    def start(self) -> None:
        """What has happened to the messages since they were read decides which of them leave."""
        forms = {int(message.number): form for message, form in zip(self.messages, self._arriving, strict=True)}
        self._hold()
        self._arriving = [forms[int(message.number)] for message in self.messages]
        if self.messages:
            self._job.flights[self.target] = self
            self._send()

    def send_again(self, outlet: Outlet) -> None:
        """What has arrived before is answered as done, and not taken twice."""
        count = self._job.most.get(self.target, len(self.messages))
        self._outlet = outlet
        self._arriving = [self._job.as_arriving(message) for message in self.messages[:count]]
        self._send()

    def _send(self) -> None:
        job = self._job
        arriving, self._arriving = self._arriving, []
        self.sent_count = len(arriving)
        numbers = [int(message.number) for message in self.messages[: self.sent_count]]
        source = TransferSource(job.fragment.key, job.lane, numbers)
        size = sum(len(message.sections) for message in arriving)
        operation = SendOperation(arriving, size, CallbackSendReply(self._answered), 0, source=source)
        self._operation = operation
        job.moving_count += self.sent_count
        try:
            self._outlet.send(operation)
        except BusError as error:
            self._failed(error, False)

    # Holding.

    def _hold(self) -> None:
        job = self._job
        held = [(message, hold_for_transfer(job.fragment, job.lane, message)) for message in self.messages]
        self.messages = [message for message, lock in held if lock is not None]
        self._locks = [lock for _, lock in held if lock is not None]

    def _is_held(self) -> bool:
        return bool(self._locks) and is_held_for_transfer(self._job.fragment, self._locks[0])

    def hold_again(self) -> None:
        """Their fragment was read anew: those that are still there may have arrived."""
        if self._is_held() or self._job.fragment.is_void:
            return
        self._operation = None
        self.is_in_doubt = True
        self._hold()
        if not self.messages:
            self._over()

    def give_up(self) -> None:
        """They did not arrive, or there is nobody who could know. They are as they were before."""
        if self._is_held():
            for lock in self._locks:
                give_up_transfer(self._job.fragment, lock)
        self._job.flights.pop(self.target, None)

    # Answers.

    def _answered(self, operation: SendOperation, error: BusError | None) -> None:
        if operation is not self._operation or not self._is_held():
            # Their store was opened anew meanwhile: what became of them is found out by sending them again.
            self.is_in_doubt = True
            self._end(len(operation.messages))
        elif error is None:
            self._taken()
        else:
            self._failed(error, _may_have_arrived(error))

    def _taken(self) -> None:
        self._operation = None
        self._job.took_all(self.target)
        self.is_in_doubt = True  # for everybody who asks before it is durable here that they are gone
        self._settling_count = self.sent_count
        count = self.sent_count
        for lock, message in list(zip(self._locks[:count], self.messages[:count], strict=True)):
            settle_transferred(self._job.fragment, lock, CallbackSettleReply(self._when_settled(message)))

    def _when_settled(self, message: Message) -> Callable[[MessageLock, BusError | None], None]:
        def settled(_lock: MessageLock, error: BusError | None) -> None:
            if error is None:
                self._job.note_moved(self.target, message)
                self._settled_one()
            self._end(1)

        return settled

    def _settled_one(self) -> None:
        self._settling_count -= 1
        if self._settling_count == 0:
            del self.messages[: self.sent_count], self._locks[: self.sent_count]
            if not self.messages:
                self._over()

    def _over(self) -> None:
        self._job.flights.pop(self.target, None)
        if self.is_passed_by:
            self._job.rewind()

    def _failed(self, error: BusError, may_have_arrived: bool) -> None:
        """Once they may have arrived, only who has judged the messages themselves says that they did not: a fragment
        that takes nothing for now does not look at what it has."""
        self._operation = None
        self.is_in_doubt = self.is_in_doubt or may_have_arrived
        if not self.is_in_doubt or (is_for_good(error) and not isinstance(error, EntityNotFound)):
            self.is_in_doubt = False
            self.give_up()
        self._when_failed(self, error)
        self._end(self.sent_count)

    def _end(self, count: int) -> None:
        job = self._job
        job.moving_count -= count
        if job.moving_count == 0:
            job.is_asked_again = True
            self._when_over(job)


def _may_have_arrived(error: BusError) -> bool:
    """Of an answer. A store that fails in the commit does not know itself what it has kept."""
    is_refused = isinstance(error, (FragmentUnavailable, StoreFull))
    return isinstance(error, (OperationTimeout, StoreUnavailable)) and not is_refused
