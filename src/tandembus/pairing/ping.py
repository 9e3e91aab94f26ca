"""Asks whether an entity of the primary is back (N10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Final, final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender

from tandembus.pairing.events import Listeners, PingFailed, PingSent
from tandembus.pairing.links import Link
from tandembus.pairing.runtime import Attempt, Runtime, Stopped, Timer
from tandembus.pairing.sdk import PingKey, without_retries

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_TIME_TO_LIVE: Final = timedelta(seconds=1)
PATIENCE_S: Final = 15.0
"""A connection has to be made first. Longer than that is worth a new one, even where pings follow each other fast."""


def make_ping(key: PingKey | None) -> ServiceBusMessage:
    """With the key of the message that failed as its session id, so that on a partitioned entity it asks the fragment
    that did not take that message. A message id is its partition key as well: namespaces that compare session ids
    without regard to case then take it exactly, as they take message ids. Without a key, any session: an entity that
    requires sessions would refuse it."""
    ping = ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE)
    ping.session_id = uuid.uuid4().hex if key is None else key.value
    if key is not None and key.is_message_id:
        ping.partition_key = key.value
    return ping


@final
class Pinger:
    """Pings one entity until a ping is accepted or nobody wants to know any more: one ping at a time, begun an
    interval after the other. Each makes a connection of its own: an old one says nothing about the way there."""

    def __init__(
        self,
        path: str,
        key: PingKey | None,
        open_sender: Callable[[], ServiceBusSender],
        interval_s: float,
        operation_timeout_s: float,
        runtime: Runtime,
        listeners: Listeners,
        accepted: Callable[[Pinger], None],
    ) -> None:
        self._path = path
        self._key = key
        self._open_sender = open_sender
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
            self._attempt.give_up(Stopped())

    async def _ping(self) -> None:
        clock = self._runtime.clock
        next_at = clock.monotonic() + self._interval_s
        self._listeners.tell(PingSent(clock.now(), self._path))
        try:
            await self._send()
        except Stopped:
            return
        except Exception as error:
            if not self._is_stopped:
                self._listeners.tell(PingFailed(clock.now(), self._path, error))
                self._timer = self._runtime.call_later(max(next_at - clock.monotonic(), 0.0), self.start)
            return
        if not self._is_stopped:
            self._accepted(self)

    async def _send(self) -> None:
        sdk = self._open_sender()
        without_retries(sdk)
        link = Link(sdk, self._runtime)
        attempt = self._attempt = Attempt(self._runtime, link)
        if self._is_stopped:
            raise Stopped
        try:
            ping = make_ping(self._key)
            await attempt.run(lambda: sdk.send_messages(ping, timeout=self._limit_s), self._limit_s)
        except BaseException as failure:
            error = link.failed(attempt, failure, self._limit_s)
            if error is failure:
                raise
            raise error from None
        finally:
            link.retire()
