"""The table of failures: one test per row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus._pyamqp.error import TokenAuthFailure
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tandembus.pairing.errors import BacklogMessageTooLarge
from tandembus.pairing.failures import BAD_ARGUMENT_CONDITIONS, TABLE, Verdict, is_the_messages_fault, verdict_on
from tests.covers import covers

COUNTS, ANSWERED, RAISED, UNCLEAR = Verdict.COUNTS, Verdict.ANSWERED, Verdict.RAISED, Verdict.UNCLEAR
ROWS: list[tuple[BaseException, Verdict]] = [
    (ServiceBusServerBusyError(), ANSWERED),
    (ServiceBusAuthenticationError(), ANSWERED),
    (ServiceBusAuthorizationError(), ANSWERED),
    (MessagingEntityNotFoundError(), ANSWERED),
    (MessageSizeExceededError(condition=b"amqp:link:message-size-exceeded"), ANSWERED),
    (ServiceBusQuotaExceededError(), ANSWERED),
    (ClientAuthenticationError("no token"), RAISED),
    (OperationTimeoutError(), COUNTS),
    (ServiceBusConnectionError(), COUNTS),
    (ServiceBusCommunicationError(), COUNTS),
    (MessagingEntityDisabledError(), COUNTS),
    (ServiceBusError("anything else"), COUNTS),
    (ConnectionRefusedError(), COUNTS),
    (OSError("no route to host"), COUNTS),
    (TimeoutError(), COUNTS),
    (TimeoutError(), COUNTS),
    (ValueError("The timeout must be greater than 0."), RAISED),
    (TypeError("not a message"), RAISED),
    (asyncio.CancelledError(), RAISED),
    (KeyboardInterrupt(), RAISED),
]


@covers("N5")
@pytest.mark.parametrize(("error", "verdict"), ROWS, ids=[type(error).__name__ for error, _ in ROWS])
def test_a_row_of_the_table(error: BaseException, verdict: Verdict) -> None:
    assert verdict_on(error) is verdict


@covers("N5")
def test_every_row_of_the_table_is_tested() -> None:
    for kind in TABLE:
        assert any(type(error) is kind or kind in (Exception, BaseException) for error, _ in ROWS), kind


@covers("N5")
@pytest.mark.parametrize("condition", sorted(BAD_ARGUMENT_CONDITIONS))
def test_what_the_service_calls_a_bad_argument_does_not_count(condition: str) -> None:
    error = ServiceBusError("refused", condition=condition.encode())
    assert verdict_on(error) is ANSWERED
    assert is_the_messages_fault(error) is True


def refused_token(status: int | None) -> Exception:
    """As the SDK raises it within itself."""
    make: Callable[..., Exception] = TokenAuthFailure
    return make(status, b"no")


@covers("N5")
@pytest.mark.parametrize("kind", [ServiceBusAuthenticationError, ServiceBusConnectionError])
@pytest.mark.parametrize(("status", "verdict"), [(401, ANSWERED), (404, ANSWERED), (500, COUNTS), (503, COUNTS)])
def test_an_answer_to_the_token_is_known_by_its_status(
    kind: Callable[..., ServiceBusError], status: int, verdict: Verdict
) -> None:
    """With a custom endpoint the SDK calls a refused token a connection error."""
    assert verdict_on(kind(error=refused_token(status))) is verdict


@covers("N5")
def test_what_the_sdk_finds_out_by_itself_says_nothing_about_the_entity() -> None:
    assert verdict_on(MessageSizeExceededError(message="the list is too large")) is RAISED
    assert verdict_on(ServiceBusAuthenticationError(error=refused_token(None))) is RAISED
    assert verdict_on(ServiceBusConnectionError(error=refused_token(None))) is COUNTS


@covers("N5")
@pytest.mark.parametrize(
    ("condition", "verdict"),
    [(b"amqp:internal-error", COUNTS), (b"com.microsoft:something-new", COUNTS), (None, COUNTS)],
)
def test_other_conditions_of_the_service_count(condition: bytes | None, verdict: Verdict) -> None:
    assert verdict_on(ServiceBusError("refused", condition=condition)) is verdict


@covers("N5")
@pytest.mark.parametrize(
    ("inner", "verdict"),
    [
        (ConnectionResetError(), COUNTS),
        (TimeoutError(), COUNTS),
        (ServiceRequestError("the authority is away"), COUNTS),
        (ClientAuthenticationError("wrong secret"), RAISED),
        (TypeError("cannot be encoded"), UNCLEAR),
        (ValueError("too large for an int"), UNCLEAR),
        (RuntimeError("closed"), COUNTS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_sdk_wraps_is_judged_by_what_is_inside(inner: BaseException, verdict: Verdict) -> None:
    assert verdict_on(ServiceBusError("Handler failed", error=inner)) is verdict


@covers("N7")
@pytest.mark.parametrize(
    ("error", "is_the_messages"),
    [
        (MessageSizeExceededError(), True),
        (BacklogMessageTooLarge(2, 1), True),
        (TypeError(), True),
        (ServiceBusServerBusyError(), False),
        (ServiceBusAuthenticationError(), False),
        (MessagingEntityNotFoundError(), False),
        (ServiceBusQuotaExceededError(), False),
        (OperationTimeoutError(), False),
        (ServiceBusError("Handler failed", error=ValueError()), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_backlog_queue_is_to_blame_unless_nobody_would_take_the_message(
    error: Exception, is_the_messages: bool | None
) -> None:
    assert is_the_messages_fault(error) is is_the_messages
