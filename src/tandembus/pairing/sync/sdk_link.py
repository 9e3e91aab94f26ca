# Generated from tandembus/pairing/sdk_link.py by tools/generate_sync.py: change that, not this.
"""Receiving and settling on a link of the SDK's, as bytes and many at a time.

The SDK decodes what it receives and forgets types on the way; it settles one message after the other; and it leaves its
credit behind, so that messages come while nobody receives them and go back out of order. The syphon needs none of that:
it uses the link that a receiver of the SDK's has opened by itself, as `tandembus.client` does. The SDK keeps what it is
good at: connecting, tokens, the management link. It promises none of these places; see `sdk_payloads.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from tandembus.clock import Clock
from tandembus.pairing.sync.runtime import Mutex
from tandembus.pairing.sdk_frames import Arrival, Confirmations, Parts, has_hung_up, is_frame_there
from tandembus.pairing.sdk_payloads import link_of, translated

ANSWER_TIMEOUT_S: Final = 15.0
"""How long the service may take to settle, or to take back credit."""

LISTEN_S: Final = 0.2


@final
class SdkLink:
    """The link of an open receiver. Received from by one task at a time, and never used again after an error.

    Others may use the receiver meanwhile, as whoever renews locks: they all read from one connection, and hand on what
    is there for others. So that frames are taken in their order, one at a time reads and handles them.
    """

    def __init__(self, receiver: Any, clock: Clock) -> None:
        self._receiver: Final = receiver
        self._clock: Final = clock
        self._handler: Final[Any] = receiver._handler
        self._link: Final[Any] = link_of(receiver)
        self._parts: Final = Parts()
        self._arrived: Final[deque[Arrival]] = deque()
        self._settling: Final[list[Confirmations]] = []
        self._is_draining = False
        self._mutex: Final = Mutex()
        self._listen: Final[Any] = self._handler._connection.listen
        self._handler._connection.listen = self._listen_alone
        self._link._incoming_transfer = self._incoming_transfer
        self._link._incoming_flow = self._incoming_flow
        self._link._incoming_disposition = self._incoming_disposition

    @property
    def is_lost(self) -> bool:
        """Also if the SDK has made its receiver another link, or has not read yet that its connection is closed."""
        receiver, link = self._receiver, self._link
        is_in_use = receiver._running and receiver._handler is self._handler and self._handler._link is link
        is_closed = not is_in_use or link._is_closed or link._error is not None
        return is_closed or has_hung_up(self._handler._connection)

    def receive(self, max_count: int, wait_s: float, is_over: Callable[[], bool]) -> list[Arrival]:
        """As soon as there is one, as many as there are; none after `wait_s`, or once `is_over`. No credit is left."""
        try:
            ends_at = self._clock.monotonic() + wait_s
            self._link.flow(link_credit=max_count)
            while not self._arrived and not is_over() and self._clock.monotonic() < ends_at:
                if not self._handler.do_work():
                    raise ServiceBusConnectionError(message="The receiver was shut down.")
            self._drain()
        except AzureError:
            raise
        except Exception as error:
            raise translated(self._receiver, error) from error
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def settle(self, arrivals: Sequence[Arrival], state: Any) -> set[int]:
        """All of them alike, until the service has confirmed it. Returns the delivery ids of those that were lost."""
        confirmations = Confirmations([each.delivery_id for each in arrivals], state)
        self._settling.append(confirmations)
        try:
            for first, last in _ranges(arrivals):
                self._dispose(first, last.delivery_id, state)
            self._listen_until(confirmations.are_complete)
            return confirmations.lost()
        except AzureError:
            raise
        except Exception as error:
            raise translated(self._receiver, error) from error
        finally:
            self._settling.remove(confirmations)

    def _dispose(self, first: Arrival, last_id: int, state: Any) -> None:
        # The SDK settles only what it has seen itself, of a range the first.
        self._link._received_delivery_tags.add(first.tag)
        self._link.send_disposition(
            wait=False,
            first_delivery_id=first.delivery_id,
            last_delivery_id=last_id,
            delivery_tag=first.tag,
            settled=False,
            delivery_state=state,
            batchable=None,
        )

    def _drain(self) -> None:
        if self._link.current_link_credit > 0:
            self._is_draining = True
            self._link.flow(link_credit=self._link.current_link_credit, drain=True)
            self._listen_until(self._has_no_credit)
            self._is_draining = False

    def _has_no_credit(self) -> bool:
        return bool(self._link.current_link_credit <= 0)

    def _listen_until(self, is_done: Callable[[], bool]) -> None:
        """Without the SDK's own round of work, which gives credit when there is none left."""
        ends_at = self._clock.monotonic() + ANSWER_TIMEOUT_S
        while not is_done():
            if self._clock.monotonic() > ends_at:
                raise OperationTimeoutError(message="The service did not answer on the receiver's link.")
            self._link.get_state()
            # Without a limit the SDK needs no task, and no turn of the loop, for each frame that has arrived already.
            self._listen_alone(wait=True if is_frame_there(self._handler._connection) else LISTEN_S)

    def _listen_alone(self, *arguments: Any, **named: Any) -> None:
        with self._mutex:
            self._listen(*arguments, **named)

    def _incoming_transfer(self, frame: Sequence[Any]) -> None:
        arrival = self._parts.add(frame)
        if arrival is not None:
            self._link.delivery_count += 1
            self._link.current_link_credit -= 1
            self._arrived.append(arrival)

    def _incoming_flow(self, frame: Sequence[Any]) -> None:
        """The service has used up the credit on a drain: both sides must count from the same number."""
        handle, delivery_count, credit = frame[4], frame[5], frame[6]
        if self._is_draining and handle is not None and delivery_count is not None and not credit:
            self._link.delivery_count = delivery_count
            self._link.current_link_credit = 0

    def _incoming_disposition(self, frame: Sequence[Any]) -> None:
        for confirmations in tuple(self._settling):
            confirmations.hear(frame)


def _ranges(arrivals: Sequence[Arrival]) -> list[tuple[Arrival, Arrival]]:
    """First and last of each unbroken row: hundreds of messages are often one disposition."""
    ranges: list[tuple[Arrival, Arrival]] = []
    for each in sorted(arrivals, key=_delivery_id):
        if ranges and ranges[-1][1].delivery_id == each.delivery_id - 1:
            ranges[-1] = (ranges[-1][0], each)
        else:
            ranges.append((each, each))
    return ranges


def _delivery_id(arrival: Arrival) -> int:
    return arrival.delivery_id
