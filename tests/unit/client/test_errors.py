"""What a namespace answers, as exceptions."""

import pytest

from tandembus.client.errors import ConnectionLost, failure_of, failure_of_answer, failure_of_status
from tandembus.errors import (
    BusError,
    EntityNotFound,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreUnavailable,
    Unauthorized,
)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("amqp:not-found", EntityNotFound),
        ("amqp:unauthorized-access", Unauthorized),
        ("com.microsoft:message-lock-lost", MessageLockLost),
        ("com.microsoft:session-lock-lost", SessionLockLost),
        ("com.microsoft:session-cannot-be-locked", SessionCannotBeLocked),
        ("com.microsoft:server-busy", ServerBusy),
        ("amqp:resource-limit-exceeded", QuotaExceeded),
        ("amqp:link:message-size-exceeded", MessageTooLarge),
        ("amqp:internal-error", StoreUnavailable),
        ("amqp:connection:forced", ConnectionLost),
        ("amqp:link:detach-forced", ConnectionLost),
        (None, ConnectionLost),
    ],
)
def test_a_condition_becomes_the_error_the_broker_itself_raises(condition: str | None, kind: type[Exception]) -> None:
    failure = failure_of(condition, "the reason")
    assert type(failure) is kind
    assert str(failure) == "the reason"


def test_an_unknown_condition_is_named_in_the_text() -> None:
    failure = failure_of("vendor:odd", "something")
    assert type(failure) is BusError
    assert str(failure) == "something (vendor:odd)"


def test_a_management_answer_goes_by_its_condition_and_else_by_its_status() -> None:
    assert type(failure_of_status(404, "com.microsoft:message-not-found", "gone")) is MessageNotFound
    assert type(failure_of_status(404, None, "gone")) is EntityNotFound
    assert type(failure_of_status(418, None, "teapot")) is BusError


@pytest.mark.parametrize(
    ("status", "detail", "kind"),
    [
        (404, "No such message. SubCode=40401. TrackingId:x", MessageNotFound),
        (404, "No such queue. SubCode=40400. TrackingId:x", EntityNotFound),
        (403, "Full. SubCode=40300.", QuotaExceeded),
        (403, "Too large. SubCode=40302.", MessageTooLarge),
        (503, "Busy.", ServerBusy),
        (504, "No answer. SubCode=50400.", OperationTimeout),
        (418, "SubCode=99999", BusError),
    ],
)
def test_an_http_answer_goes_by_the_code_in_its_text_and_else_by_its_status(
    status: int, detail: str, kind: type[Exception]
) -> None:
    assert type(failure_of_answer(status, detail)) is kind


def test_a_lost_connection_is_an_error_of_the_operating_system_and_worth_a_retry() -> None:
    assert isinstance(failure_of(None, ""), OSError)
    assert ConnectionLost.retryable
