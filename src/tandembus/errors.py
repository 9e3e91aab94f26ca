"""Everything the system refuses on purpose.

The core raises these; `front_end/amqp/conditions.py` and `front_end/http/statuses.py` translate each of them once,
by plain tables, so that a client sees the protocol's own word for what went wrong.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar


class BusError(Exception):
    """Anything the system refuses on purpose; its text is shown to the client."""

    retryable: ClassVar[bool] = False


class MalformedData(BusError):
    """Bytes that are not what their protocol says they must be."""


class InvalidArgument(BusError):
    """A value that is understood but not allowed where it stands."""


class InvalidOperation(BusError):
    """An operation that the entity, in its present shape, does not do."""


class NotSupported(BusError):
    """An operation that this version does not know."""


class EntityNotFound(BusError):
    """The named entity is not there (any more)."""


class EntityAlreadyExists(BusError):
    """The name is taken."""


class EntityDisabled(BusError):
    """The entity's status forbids this operation."""

    retryable = True


class Unauthorized(BusError):
    """No valid claim for this: missing, wrong, expired or too narrow."""


class MessageLockLost(BusError):
    """The lock lapsed, was settled already, or belongs to an earlier life of the broker."""


class SessionLockLost(BusError):
    """The lock on the session lapsed, or its link is gone: what was received under it goes back."""


class SessionLockLapsed(SessionLockLost):
    """The time of the lock on the session is over; its link is still there."""


class SessionCannotBeLocked(BusError):
    """Somebody else holds this session."""

    retryable = True


class StaleEpoch(BusError):
    """The owner of reservations was opened anew, or given up, since: whoever still uses the epoch of before must
    stop."""


class MessageNotFound(BusError):
    """No message in the asked-for state has this sequence number."""


class MessageTooLarge(BusError):
    """The message (or batch) is above the entity's limit."""


class QuotaExceeded(BusError):
    """The entity, or the namespace, is full."""


class ServerBusy(BusError):
    """Throttled: come back in ten seconds. Never used for an outage."""

    retryable = True


class OperationTimeout(BusError):
    """The answer did not come in time; the outcome may be unknown."""

    retryable = True


class TransactionRolledBack(BusError):
    """Nothing of the transaction was carried out."""


class TransactionNotFound(BusError):
    """No open transaction has this id: it was never declared here, or it is over."""


class TransactionTimedOut(BusError):
    """The transaction was open for too long: nothing of it was carried out."""


class StoreUnavailable(BusError):
    """The messaging store cannot be relied on at the moment; nothing was acknowledged."""

    retryable = True


class StoreFull(StoreUnavailable):
    """The disk or the map has no room for what grows; receiving and settling go on."""


class StoreDamaged(StoreUnavailable):
    """The store's files are not what they must be."""


class FragmentUnavailable(StoreUnavailable):
    """The fragment's broker or store is out of reach. Nothing was taken: another fragment may be tried."""


class OutcomeUnknown(OperationTimeout):
    """It was handed over and never answered: it may have been carried out, or not."""


E = TypeVar("E", bound=BusError)


def anew(error: E) -> E:
    """The same error, to be raised. One that is kept, such as why a store is out, must not be raised itself: it would
    keep the frames of all who were ever told, with everything they had in hand."""
    return type(error)(str(error))
