"""The backlog queues on the secondary: made where missing (N2, N3), and shared by all senders of a client (N6, N7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, final

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from tandembus.pairing.errors import PairingFailed
from tandembus.pairing.events import BacklogQueueDropped, Listeners
from tandembus.pairing.rotation import Rotation
from tandembus.pairing.runtime import Attempt, OutOfTime, Runtime, pause
from tandembus.pairing.transfer import backlog_path

T = TypeVar("T")
TRIES: Final = 3
PAUSE_S: Final = 0.5
FOREVER: Final = "P10675199DT2H48M5.4775807S"
"""The longest duration that the service knows."""
REFUSED_STATUSES: Final = (400, 401, 403)
NO_RIGHTS_STATUSES: Final = (401, 403)
UNAVAILABLE_STATUS: Final = 503
_log = logging.getLogger("tandembus.pairing")


@final
class BacklogQueues:
    """Which of them are in use. One that refuses a message is out for everybody at once."""

    def __init__(self, rotation: Rotation, is_by_key: bool, runtime: Runtime, listeners: Listeners) -> None:
        self._rotation = rotation
        self._is_by_key = is_by_key
        self._runtime = runtime
        self._listeners = listeners
        self._errors: dict[str, BaseException] = {}

    @property
    def is_by_key(self) -> bool:
        return self._is_by_key

    @property
    def available(self) -> tuple[str, ...]:
        return self._rotation.available

    @property
    def errors(self) -> dict[str, BaseException]:
        """Of those that are out: what each answered to the send that it refused."""
        in_use = set(self._rotation.available)
        return {queue: error for queue, error in self._errors.items() if queue not in in_use}

    def pick(self, key: str | None, previous: str | None) -> str | None:
        """For a message with this key, by a sender that used `previous` before; None if all are out."""
        if key is not None:
            return self._rotation.pick_for_key(key)
        return self._rotation.pick(previous)

    def drop(self, queue: str, error: BaseException) -> None:
        was_in_use = self._rotation.drop(queue)
        self._errors[queue] = error
        left = len(self._rotation.available)
        if was_in_use:
            self._listeners.tell(BacklogQueueDropped(self._runtime.clock.now(), queue, error, left))

    def restore(self) -> None:
        self._rotation.restore()
        self._errors.clear()


async def create_backlog_queues(
    admin: ServiceBusAdministrationClient, primary_name: str, count: int, limit_s: float, runtime: Runtime
) -> list[str]:
    """The paths of all backlog queues, each of which is there now. Raises `PairingFailed`."""
    queues = [backlog_path(primary_name, index) for index in range(count)]
    for queue in queues:
        await _create_where_missing(admin, queue, limit_s, runtime)
    return queues


async def _create_where_missing(
    admin: ServiceBusAdministrationClient, queue: str, limit_s: float, runtime: Runtime
) -> None:
    what = f"the backlog queue {queue} cannot be made on the secondary"
    await _ask(lambda: _try_to_create(admin, queue), what, limit_s, runtime)


async def name_of_secondary(admin: ServiceBusAdministrationClient, limit_s: float, runtime: Runtime) -> str:
    """As it calls itself. Raises `PairingFailed`."""
    found = await _ask(lambda: admin.get_namespace_properties(), "the secondary cannot be asked", limit_s, runtime)
    return found.name


async def _ask(call: Callable[[], Coroutine[Any, Any, T]], what: str, limit_s: float, runtime: Runtime) -> T:
    """Several times, unless that is of no use. `what` has failed if none succeeds."""
    left = TRIES
    while True:
        left -= 1
        try:
            return await Attempt(runtime).run(call, limit_s)
        except (AzureError, OSError, OutOfTime) as error:
            if left == 0 or _is_refusal(error):
                raise PairingFailed(f"{what}: {error!r}{advice_on(error)}") from error
            _log.warning("%s, trying again: %r", what, error)
        await pause(PAUSE_S)


async def _try_to_create(admin: ServiceBusAdministrationClient, queue: str) -> None:
    """An existing queue is used as it is: whoever made it differently has reasons."""
    try:
        await admin.get_queue(queue)
        return
    except ResourceNotFoundError:
        pass
    except HttpResponseError as error:
        # Nobody can count its messages at the moment. Whether it exists shows when it is created.
        if error.status_code != UNAVAILABLE_STATUS:
            raise
    try:
        await admin.create_queue(
            queue,
            max_size_in_megabytes=5120,
            max_delivery_count=2147483647,
            default_message_time_to_live=FOREVER,
            auto_delete_on_idle=FOREVER,
            lock_duration="PT1M",
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
        )
    except ResourceExistsError:
        # Somebody else pairs at the same time.
        pass


def advice_on(error: BaseException) -> str:
    """What to do about it, where that can be told."""
    if is_untrusted(error):
        return (
            ". Nobody this program trusts has signed the secondary's certificate: give its clients "
            "connection_verify='<ca.pem>' (`tandembus ca` names the file of a namespace here)"
        )
    if isinstance(error, ServiceBusAuthenticationError):
        return ". The key that secondary_client was given must be one of the secondary's, with the right Send"
    if isinstance(error, ClientAuthenticationError) or getattr(error, "status_code", None) in NO_RIGHTS_STATUSES:
        return ". The key that secondary_admin was given must be one of the secondary's, with the right Manage"
    return ""


def is_untrusted(error: BaseException) -> bool:
    """A certificate does not get better. The SDK passes such errors on in several forms, and always with this text."""
    return "CERTIFICATE_VERIFY_FAILED" in repr(error)


def _is_refusal(error: BaseException) -> bool:
    """Asking again would not help."""
    if isinstance(error, ClientAuthenticationError) or is_untrusted(error):
        return True
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
