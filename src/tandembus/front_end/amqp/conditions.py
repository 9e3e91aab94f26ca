"""Errors as AMQP says them: one plain table, read by links and by the management node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandembus.amqp.encoding.delivery_states import AmqpError
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    NotSupported,
    OperationTimeout,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLapsed,
    SessionLockLost,
    StaleEpoch,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    TransactionNotFound,
    TransactionRolledBack,
    TransactionTimedOut,
    Unauthorized,
)
from tandembus.front_end.error_texts import error_text

CONDITIONS: Final[Mapping[type[BusError], str]] = {
    MalformedData: "amqp:decode-error",
    InvalidArgument: "com.microsoft:argument-error",
    InvalidOperation: "amqp:not-allowed",
    NotSupported: "amqp:not-implemented",
    EntityNotFound: "amqp:not-found",
    EntityAlreadyExists: "com.microsoft:entity-already-exists",
    EntityDisabled: "com.microsoft:entity-disabled",
    Unauthorized: "amqp:unauthorized-access",
    MessageLockLost: "com.microsoft:message-lock-lost",
    SessionLockLost: "com.microsoft:session-lock-lost",
    SessionLockLapsed: "com.microsoft:session-lock-lost",
    SessionCannotBeLocked: "com.microsoft:session-cannot-be-locked",
    StaleEpoch: "tandembus:stale-epoch",
    MessageNotFound: "com.microsoft:message-not-found",
    MessageTooLarge: "amqp:link:message-size-exceeded",
    QuotaExceeded: "amqp:resource-limit-exceeded",
    ServerBusy: "com.microsoft:server-busy",
    OperationTimeout: "com.microsoft:timeout",
    TransactionRolledBack: "amqp:transaction:rollback",
    TransactionNotFound: "amqp:transaction:unknown-id",
    TransactionTimedOut: "amqp:transaction:timeout",
    StoreUnavailable: "amqp:internal-error",
    StoreFull: "amqp:internal-error",
    StoreDamaged: "amqp:internal-error",
    FragmentUnavailable: "amqp:internal-error",
    OutcomeUnknown: "com.microsoft:timeout",
}

MANAGEMENT_STATUSES: Final[Mapping[type[BusError], int]] = {
    MalformedData: 400,
    InvalidArgument: 400,
    InvalidOperation: 400,
    NotSupported: 501,
    EntityNotFound: 404,
    EntityAlreadyExists: 409,
    EntityDisabled: 403,
    Unauthorized: 401,
    MessageLockLost: 410,
    SessionLockLost: 410,
    SessionLockLapsed: 410,
    SessionCannotBeLocked: 410,
    StaleEpoch: 410,
    MessageNotFound: 404,
    MessageTooLarge: 403,
    QuotaExceeded: 403,
    ServerBusy: 503,
    OperationTimeout: 408,
    TransactionRolledBack: 409,
    TransactionNotFound: 404,
    TransactionTimedOut: 408,
    StoreUnavailable: 500,
    StoreFull: 500,
    StoreDamaged: 500,
    FragmentUnavailable: 500,
    OutcomeUnknown: 408,
}


def condition_of(error: BusError) -> str:
    return CONDITIONS[type(error)]


def amqp_error(error: BusError, host: str | None) -> AmqpError:
    """`host`: the one that the client asked for."""
    return AmqpError(condition_of(error), error_text(error, host), None)
