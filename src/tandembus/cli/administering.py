"""What the commands that administer entities share."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from tandembus.cli.failures import FAILED, Failure, failure_from
from tandembus.cli.target import Target
from tandembus.client.administration import Administration
from tandembus.errors import QuotaExceeded

T = TypeVar("T")
TOO_MANY: Final = "Delete what is not needed, or raise the namespace's limit (limits.max_entities and its like)."


def administration(target: Target) -> Administration:
    return Administration(target.connection_string, ca_path=target.ca_path)


async def creating(work: Awaitable[T]) -> T:
    """A quota met while something is made is not about messages, so neither is the advice."""
    try:
        return await work
    except QuotaExceeded as error:
        failure = failure_from(error)
        raise Failure(failure.message, FAILED, TOO_MANY, failure.kind) from error
