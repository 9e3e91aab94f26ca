"""Which HTTP status, and which finer code in the text, each refusal becomes. A plain table.

The SDKs read the status and, for some, the `SubCode=` in the detail. azure-core repeats requests that got
408, 429, 500, 502, 503 or 504, so only what may pass by itself gets one of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandembus import errors
from tandembus.errors import BusError

RETRY_AFTER_S: Final = 10


@dataclass(frozen=True, slots=True)
class Status:
    """How one kind of refusal is told over HTTP."""

    code: int
    sub_code: int
    retry_after_s: int | None = None


INTERNAL: Final = Status(500, 50000)

STATUSES: Final[Mapping[type[BusError], Status]] = {
    errors.MalformedData: Status(400, 40000),
    errors.InvalidArgument: Status(400, 40000),
    errors.InvalidOperation: Status(400, 40009),
    errors.NotSupported: Status(400, 40010),
    errors.Unauthorized: Status(401, 40100),
    errors.QuotaExceeded: Status(403, 40300),
    # The JS SDK takes a 403 for a full entity unless it says 40301.
    errors.EntityDisabled: Status(403, 40301),
    errors.MessageTooLarge: Status(403, 40302),
    errors.EntityNotFound: Status(404, 40400),
    errors.MessageNotFound: Status(404, 40401),
    errors.MessageLockLost: Status(404, 40402),
    errors.SessionLockLost: Status(404, 40403),
    errors.SessionLockLapsed: Status(404, 40403),
    errors.SessionCannotBeLocked: Status(409, 40902),
    # Reservations are AMQP's, too.
    errors.StaleEpoch: Status(409, 40900),
    # Never 40901: the JS SDK would take that for an operation still going on.
    errors.EntityAlreadyExists: Status(409, 40900),
    # Transactions are AMQP's; the table is whole all the same.
    errors.TransactionRolledBack: Status(409, 40900),
    errors.TransactionNotFound: Status(404, 40400),
    errors.TransactionTimedOut: Status(409, 40900),
    errors.ServerBusy: Status(503, 50004, RETRY_AFTER_S),
    errors.OperationTimeout: Status(504, 50400),
    errors.StoreUnavailable: INTERNAL,
    errors.StoreFull: INTERNAL,
    errors.StoreDamaged: INTERNAL,
    errors.FragmentUnavailable: INTERNAL,
    errors.OutcomeUnknown: Status(504, 50400),
}


def status_of(error: BusError) -> Status:
    """The status of the error or, for one that the table does not name, of what it is a kind of."""
    for kind in type(error).__mro__:
        status = STATUSES.get(kind)
        if status is not None:
            return status
    return INTERNAL
