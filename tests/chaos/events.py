"""The form of a history: one JSON object per line, each something that a client did, was told or saw.

Times (`at`) are wall time in seconds, all taken on the machine that runs the load. What is left out has its default.

| kind | says | fields |
|---|---|---|
| run | the first line | seed, note |
| entity | what it is | entity, fragments, has_sessions, duplicate_window_s, lock_s, source, is_at_most_once, |
| | | is_paired |
| send | a send begins | op, entity, id, session, key, digest, batch, transaction |
| settle | a settlement begins | op, entity, id, number, token, how, transaction |
| commit, rollback | a transaction is to end | op, transaction |
| ok, failed, unknown | what came of operation `op`: done; certainly not done; nobody knows | op, error |
| received | a message came, with a lock if with a token | as `left`; token, locked_until, receiver, delivery_count |
| failover | `took_s` after the first failure, from now on sends to it go to the backlog | entity, took_s |
| healthy | sends to it go to the primary again | entity |
| renewed | a lock lasts longer | token, locked_until |
| session | a session was accepted | entity, session, receiver, locked_until |
| closed | a receiver closes or is lost: from here on it holds no session for certain | receiver |
| held | what a syphon had in its hands when it was killed | kill, entity, id |
| down | for `took_s` these places lose their locks; what is under way is in doubt | kill, broker, places, took_s, |
| | | how, note |
| up | they serve again, `took_s` after they were lost; for `out_s` none of them served | kill, broker, took_s, out_s |
| count | what the service says it holds, when all is quiet | entity, active, dead, scheduled |
| left | what was found there, when all is quiet | entity, id, session, number, digest, state, is_ping |

`source` of an entity is the topic, or the forwarding queue, that feeds it. `kill` numbers the losses: an `up` belongs
to the `down` of its number. `places` maps an entity to the indexes of its fragments; empty means everything. Of a pair,
`how` says what was lost: the primary, where the entities are, or the secondary or the syphon, which concern only what
goes through the backlog; and `note` whether it was only stopped, or whether nothing was lost and an entity took no more
messages. `batch` and `transaction` number what was sent together. `number` is the whole sequence number: its top 16
bits name the fragment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

NUMBER_BITS = 48
OUTCOMES = ("ok", "failed", "unknown")
KINDS = (
    *("run", "entity", "send", "settle", "commit", "rollback", *OUTCOMES),
    *("received", "renewed", "session", "closed", "down", "up", "count", "left"),
    *("failover", "healthy", "held"),
)


class NotAHistory(Exception):
    """A line that says nothing of this form."""


@dataclass(slots=True)
class Event:
    kind: str
    at: float
    op: int = 0
    entity: str = ""
    id: str = ""
    session: str | None = None
    key: str | None = None
    digest: int = 0
    batch: int = 0
    transaction: int = 0
    number: int = 0
    token: str = ""
    locked_until: float = 0.0
    delivery_count: int = 0
    receiver: int = 0
    how: str = ""
    error: str = ""
    state: str = "active"
    kill: int = 0
    broker: int = -1
    places: dict[str, list[int]] = field(default_factory=dict)
    took_s: float = 0.0
    out_s: float = 0.0
    seed: int = 0
    note: str = ""
    fragments: int = 1
    has_sessions: bool = False
    duplicate_window_s: float = 0.0
    lock_s: float = 60.0
    source: str = ""
    is_at_most_once: bool = False
    is_paired: bool = False
    is_ping: bool = False
    active: int = 0
    dead: int = 0
    scheduled: int = 0

    @property
    def fragment(self) -> int:
        return self.number >> NUMBER_BITS


_DEFAULTS: dict[str, Any] = {
    one.name: one.default if one.default is not MISSING else {}
    for one in fields(Event)
    if one.name not in ("kind", "at")
}


def line_of(event: Event) -> str:
    said: dict[str, Any] = {"kind": event.kind, "at": round(event.at, 6)}
    for name, default in _DEFAULTS.items():
        value = getattr(event, name)
        if value != default:
            said[name] = value
    return json.dumps(said, separators=(",", ":"))


def event_of(line: str) -> Event:
    try:
        said = json.loads(line)
        event = Event(**said)
    except (ValueError, TypeError) as error:
        raise NotAHistory(f"{line[:80]!r}: {error}") from error
    if event.kind not in KINDS:
        raise NotAHistory(f"there is no event {event.kind!r}")
    return event


def read_events(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        for line in lines:
            if line.strip():
                yield event_of(line)
