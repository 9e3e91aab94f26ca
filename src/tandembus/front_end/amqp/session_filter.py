"""What a client says when it asks for a session, and what it is told when it gets one (wire contract 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.encoding.values import Described, Typed
from tandembus.amqp.engine import Link
from tandembus.errors import InvalidArgument
from tandembus.interconnect.traffic import SessionHold
from tandembus.limits import Limits

SESSION_FILTER = "com.microsoft:session-filter"
TIMEOUT = "com.microsoft:timeout"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
LONG = 0x81
TICKS_AT_EPOCH = 621_355_968_000_000_000
TICKS_PER_MS = 10_000
LONGEST_WAIT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A session by its name, or the next available one (None) within a time."""

    session_id: str | None
    timeout_s: float


def session_request(link: Link, limits: Limits) -> SessionRequest | None:
    """None: the client asks for no session."""
    source = link.source
    if source is None or not source.filter or SESSION_FILTER not in source.filter:
        return None
    return SessionRequest(_session_id(source.filter[SESSION_FILTER], limits), _timeout_s(link, limits))


def _session_id(value: object, limits: Limits) -> str | None:
    value = _plain(value)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument("The session filter must be a string, or null for the next available session.")
    if value is not None and len(value) > limits.max_key_length:
        raise InvalidArgument(f"A SessionId has at most {limits.max_key_length} characters.")
    return value


def _timeout_s(link: Link, limits: Limits) -> float:
    value = _plain((link.properties or {}).get(TIMEOUT))
    if value is None:
        return limits.operation_timeout_s
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgument(f"'{TIMEOUT}' must be a number of milliseconds.")
    return min(value / 1000, LONGEST_WAIT_S)


def _plain(value: object) -> object:
    while isinstance(value, Typed | Described):
        value = value.value
    return value


def granted_source(link: Link, hold: SessionHold) -> Terminus | None:
    """The client's own source, with the session that it got. A filter that came with a descriptor, as Go's does, is
    answered with it: Go's AMQP library takes no other for a filter."""
    source = link.source
    if source is None:
        return None
    asked = (source.filter or {}).get(SESSION_FILTER)
    granted: object = hold.session_id
    if isinstance(asked, Described):
        granted = Described(asked.descriptor, granted)
    return source.with_filter({SESSION_FILTER: granted})


def granted_properties(hold: SessionHold) -> dict[str, object]:
    return {LOCKED_UNTIL: Typed(LONG, TICKS_AT_EPOCH + int(hold.locked_until_ms) * TICKS_PER_MS)}
