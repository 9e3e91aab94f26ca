"""What a namespace answered, as exceptions: the mirror of the tables a front end uses.

The service's refusals become the same `BusError` classes the broker raises, so there is one word for one
trouble on both sides of the wire. Trouble with the connection itself is a `ConnectionLost`, a child of
Python's own `ConnectionError`; nothing was refused then, and the outcome of what was under way is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    NotSupported,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StaleEpoch,
    StoreUnavailable,
    TransactionNotFound,
    TransactionRolledBack,
    TransactionTimedOut,
    Unauthorized,
)


class ConnectionLost(ConnectionError):
    """The connection or the link is gone, or was never made; reconnecting may help."""

    retryable = True


class TokenRefused(Unauthorized):
    """The namespace does not accept the token: the key, the signature or the credential is wrong."""


class OtherKind(EntityNotFound):
    """There is something of this name, but it is not what was asked for: a topic and no queue, or the reverse."""

    def __init__(self, name: str, kind: str, wanted: str) -> None:
        super().__init__(f"'{name}' is a {kind}, and no {wanted}.")
        self.name = name
        self.kind = kind


class SomeLocksLost(MessageLockLost):
    """Of messages that were settled together these were not ours any more. All others are settled as asked."""

    def __init__(self, delivery_ids: Iterable[int], description: str) -> None:
        """`description`: what the service said of the first of them."""
        self.delivery_ids: Final = frozenset(delivery_ids)
        more = len(self.delivery_ids) - 1
        super().__init__(description if not more else f"{description} (and so of {more} more)")


ClientFailure = (BusError, OSError)
"""For `except`: everything that using a namespace may raise."""

CONDITIONS: Final[Mapping[str, type[BusError]]] = {
    "amqp:not-found": EntityNotFound,
    "amqp:resource-deleted": EntityNotFound,
    "com.microsoft:entity-not-found": EntityNotFound,
    "com.microsoft:entity-already-exists": EntityAlreadyExists,
    "com.microsoft:entity-disabled": EntityDisabled,
    "amqp:unauthorized-access": Unauthorized,
    "com.microsoft:auth-failed": Unauthorized,
    "com.microsoft:message-lock-lost": MessageLockLost,
    "com.microsoft:session-lock-lost": SessionLockLost,
    "com.microsoft:session-cannot-be-locked": SessionCannotBeLocked,
    "tandembus:stale-epoch": StaleEpoch,
    "com.microsoft:message-not-found": MessageNotFound,
    "com.microsoft:server-busy": ServerBusy,
    "com.microsoft:timeout": OperationTimeout,
    "amqp:resource-limit-exceeded": QuotaExceeded,
    "amqp:link:message-size-exceeded": MessageTooLarge,
    "amqp:not-allowed": InvalidOperation,
    "amqp:precondition-failed": InvalidOperation,
    "com.microsoft:precondition-failed": InvalidOperation,
    "amqp:illegal-state": InvalidOperation,
    "amqp:transaction:rollback": TransactionRolledBack,
    "amqp:transaction:unknown-id": TransactionNotFound,
    "amqp:transaction:timeout": TransactionTimedOut,
    "amqp:not-implemented": NotSupported,
    "com.microsoft:argument-error": InvalidArgument,
    "com.microsoft:argument-out-of-range": InvalidArgument,
    "amqp:invalid-field": InvalidArgument,
    "amqp:decode-error": MalformedData,
    "amqp:internal-error": StoreUnavailable,
}
"""Conditions that say what was wrong with the request, or with the entity."""

CONNECTION_CONDITIONS: Final = frozenset(
    (
        "amqp:connection:forced",
        "amqp:connection:framing-error",
        "amqp:link:detach-forced",
        "amqp:link:stolen",
        "amqp:session:errant-link",
        "amqp:session:window-violation",
        "com.microsoft:container-close",
    )
)
"""Conditions that only say that this connection or link is over."""

STATUSES: Final[Mapping[int, type[BusError]]] = {
    400: InvalidArgument,
    401: Unauthorized,
    403: QuotaExceeded,
    404: EntityNotFound,
    405: NotSupported,
    408: OperationTimeout,
    409: EntityAlreadyExists,
    410: MessageLockLost,
    412: InvalidOperation,
    413: MessageTooLarge,
    429: ServerBusy,
    500: StoreUnavailable,
    501: NotSupported,
    503: ServerBusy,
    504: OperationTimeout,
}
"""HTTP statuses, and those of a management node that gave no condition."""


SUB_CODES: Final[Mapping[int, type[BusError]]] = {
    40009: InvalidOperation,
    40010: NotSupported,
    40301: EntityDisabled,
    40302: MessageTooLarge,
    40401: MessageNotFound,
    40402: MessageLockLost,
    50300: StoreUnavailable,
}
"""Finer than an HTTP status, as a tandembus namespace says it in the text of a refusal."""

_SUB_CODE: Final = re.compile(r"SubCode=(\d{5})\b", re.ASCII)


def failure_of(condition: str | None, description: str) -> Exception:
    """The exception for an AMQP error; an unknown condition is named in the text, since nothing else tells of it."""
    if condition is None or condition in CONNECTION_CONDITIONS:
        return ConnectionLost(description or condition or "the service ended it without a reason")
    kind = CONDITIONS.get(condition)
    if kind is None:
        return BusError(f"{description or 'refused'} ({condition})")
    return kind(description or condition)


def failure_of_status(status: int, condition: str | None, description: str) -> Exception:
    """The exception for a status with an optional condition, as management nodes and HTTP answer."""
    if condition is not None and condition in CONDITIONS:
        return failure_of(condition, description)
    return STATUSES.get(status, BusError)(description or f"the service answered with status {status}")


def failure_of_answer(status: int, detail: str) -> Exception:
    """The exception for an HTTP status and the text that came with it."""
    found = _SUB_CODE.search(detail)
    kind = SUB_CODES.get(int(found[1])) if found is not None else None
    return failure_of_status(status, None, detail) if kind is None else kind(detail)
