"""Pings an entity of the primary until it is available again (N10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeAlias, final

from azure.servicebus import ServiceBusMessage

from tandembus.errors import OperationTimeout
from tandembus.pairing.events import Listeners, PingFailed, PingSent
from tandembus.pairing.runtime import Attempt, Ending, GivenUp, Runtime, Timer
from tandembus.pairing.sdk import PingKey, outgoing

SendPing: TypeAlias = Callable[[str, bytes, float], Coroutine[Any, Any, None]]
"""Sends an encoded ping to an entity, and gives up after some seconds."""

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_TIME_TO_LIVE: Final = timedelta(seconds=1)
PATIENCE_S: Final = 15.0
"""The shortest time-out of a ping, however short the interval is: it opens a connection first."""


def make_ping(key: PingKey | None) -> ServiceBusMessage:
    """Its session id is the key of the message that failed, so that on a partitioned entity it checks the fragment that
    did not take that message. A message id becomes its partition key as well: namespaces that ignore the case of
    session ids then compare it exactly, as they do message ids. Without a key it gets a random session id, since an
    entity that requires sessions would refuse it."""
    ping = ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE)
    ping.session_id = uuid.uuid4().hex if key is None else key.value
    if key is not None and key.is_message_id:
        ping.partition_key = key.value
    return ping


@final
class Pinger:
    """Pings one entity until a ping is accepted or the pinger is stopped: one ping at a time, an interval apart."""

    def __init__(
        self,
        path: str,
        key: PingKey | None,
        send_ping: SendPing,
        interval_s: float,
        operation_timeout_s: float,
        runtime: Runtime,
        listeners: Listeners,
        accepted: Callable[[Pinger], None],
    ) -> None:
        self._path = path
        self._key = key
        self._send_ping = send_ping
        self._interval_s = interval_s
        self._limit_s = min(operation_timeout_s, max(interval_s, PATIENCE_S))
        self._runtime = runtime
        self._listeners = listeners
        self._accepted = accepted
        self._attempt: Attempt | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        if not self._is_stopped:
            self._runtime.start(self._ping)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.give_up(Ending.STOPPED)

    async def _ping(self) -> None:
        if self._is_stopped:
            return
        clock = self._runtime.clock
        next_at = clock.monotonic() + self._interval_s
        self._listeners.tell(PingSent(clock.now(), self._path))
        try:
            await self._send()
        except Exception as error:
            if not self._is_stopped:
                self._listeners.tell(PingFailed(clock.now(), self._path, error))
                self._timer = self._runtime.call_later(max(next_at - clock.monotonic(), 0.0), self.start)
            return
        if not self._is_stopped:
            self._accepted(self)

    async def _send(self) -> None:
        attempt = self._attempt = Attempt(self._runtime)
        (ping,) = outgoing(make_ping(self._key))
        try:
            await attempt.run(lambda: self._send_ping(self._path, ping.payload, self._limit_s), self._limit_s)
        except GivenUp:
            raise OperationTimeout(f"{self._path} did not answer a ping within {self._limit_s:g} s") from None
