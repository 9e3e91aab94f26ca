"""Which failures of a send count against the primary (N5): one table, read from top to bottom.

A failure counts if the entity, its broker or the way there is at fault, so that the next send would most likely fail,
too. Mistakes of the caller do not count: moving to the backlog would hide them and bring them back later as dead
letters. An answer of the entity itself also proves that it can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from azure.core.exceptions import ClientAuthenticationError
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

from tandembus.pairing.sdk import condition_of, is_of_the_token, token_status_in


class Verdict(Enum):
    COUNTS = "counts"
    ANSWERED = "answered"
    """Raised to the caller. It proves that the entity answers and stops the timer, as a success does."""
    RAISED = "raised"
    """Raised to the caller. It says nothing about the entity."""
    UNCLEAR = "unclear"
    """An error of Python itself while the SDK was sending: only the message shows whose fault it is."""


TABLE: Final[Mapping[type[BaseException], Verdict]] = {
    # The service works, and asks for fewer sends.
    ServiceBusServerBusyError: Verdict.ANSWERED,
    # A wrong key does not get better elsewhere. The SDK also reports an unknown entity in this way.
    ServiceBusAuthenticationError: Verdict.ANSWERED,
    ServiceBusAuthorizationError: Verdict.ANSWERED,
    MessagingEntityNotFoundError: Verdict.ANSWERED,
    MessageSizeExceededError: Verdict.ANSWERED,
    ServiceBusQuotaExceededError: Verdict.ANSWERED,
    # The issuer of tokens refused, not the service.
    ClientAuthenticationError: Verdict.RAISED,
    # Named, although a later row has the same verdict: this is what an outage looks like.
    OperationTimeoutError: Verdict.COUNTS,
    ServiceBusConnectionError: Verdict.COUNTS,
    ServiceBusCommunicationError: Verdict.COUNTS,
    MessagingEntityDisabledError: Verdict.COUNTS,
    ServiceBusError: Verdict.COUNTS,
    # Sockets, names, TLS, time-outs.
    OSError: Verdict.COUNTS,
    # Bad arguments, a sender that is closed, cancellation by the caller, the interpreter's end.
    Exception: Verdict.RAISED,
    BaseException: Verdict.RAISED,
}

BAD_ARGUMENT_CONDITIONS: Final = frozenset(
    (
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:not-implemented",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    )
)
"""Conditions for bad arguments: the SDK has no class for them."""
INTERNAL_ERROR: Final = 500


def verdict_on(error: BaseException) -> Verdict:
    """Judges a failed send."""
    if type(error) is ServiceBusError:
        return _verdict_on_nameless(error)
    if (status := token_status_in(error)) is not None:
        return Verdict.ANSWERED if status < INTERNAL_ERROR else Verdict.COUNTS
    if _is_without_an_answer(error):
        return Verdict.RAISED
    return _row_of(error)


def _row_of(error: BaseException) -> Verdict:
    for kind, verdict in TABLE.items():
        if isinstance(error, kind):
            return verdict
    raise AssertionError("BaseException is in the table")


def _is_without_an_answer(error: BaseException) -> bool:
    """Whether the SDK itself raised the error: a list is larger than the link takes, a token got no answer."""
    if isinstance(error, MessageSizeExceededError):
        return condition_of(error) is None
    return isinstance(error, ServiceBusAuthenticationError) and is_of_the_token(error)


def _verdict_on_nameless(error: ServiceBusError) -> Verdict:
    """The SDK uses its base class for conditions that have no class and for failures inside the SDK, which then have an
    inner exception."""
    if condition_of(error) in BAD_ARGUMENT_CONDITIONS:
        return Verdict.ANSWERED
    inner = error.inner_exception
    if inner is None or isinstance(inner, OSError):
        return Verdict.COUNTS
    if isinstance(inner, ClientAuthenticationError):
        return Verdict.RAISED
    return (
        Verdict.UNCLEAR if isinstance(inner, (ArithmeticError, LookupError, TypeError, ValueError)) else Verdict.COUNTS
    )
