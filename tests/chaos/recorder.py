"""Writes a history while it happens; see `events.py` for its form."""

from __future__ import annotations

import random
import threading
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

from tandembus.client import OutgoingMessage, ReceivedMessage
from tandembus.clock import SystemClock
from tandembus.errors import OperationTimeout, StoreUnavailable
from tests.chaos.check import judge, report
from tests.chaos.events import Event, line_of
from tests.chaos.figures import Figures
from tests.chaos.history import History

_CLOCK = SystemClock()
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"


class Recorder:
    """One file, written by one event loop and perhaps a few threads beside it: of each the lines are in the order in
    which things happened."""

    def __init__(self, path: Path, seed: int, note: str = "") -> None:
        self.path = path
        self.seed = seed
        self.accepted_count = 0
        self._file = path.open("w")
        self._writing = threading.Lock()
        self._next = 0
        self.say("run", seed=seed, note=note)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def say(self, kind: str, **said: Any) -> None:
        self.say_at(_CLOCK.now(), kind, **said)

    def say_at(self, at: float, kind: str, **said: Any) -> None:
        """For what is known only later."""
        line = line_of(Event(kind, at, **said)) + "\n"
        with self._writing:
            self._file.write(line)

    def number(self) -> int:
        """A new one, for an operation, a receiver, a batch or a transaction."""
        with self._writing:
            self._next += 1
            return self._next

    def sending(self, entity: str, message: OutgoingMessage, key: str | None, **said: Any) -> int:
        operation = self.number()
        digest = digest_of(message.body if isinstance(message.body, bytes) else message.body.encode())
        self.say(
            "send",
            op=operation,
            entity=entity,
            id=message.message_id,
            session=message.session_id,
            key=key,
            digest=digest,
            **said,
        )
        return operation

    def received(self, entity: str, message: ReceivedMessage, receiver: int, is_locked: bool = True) -> None:
        self.say(
            "received",
            **_seen(entity, message),
            token=message.tag.hex() if is_locked else "",
            locked_until=message.locked_until or 0.0,
            receiver=receiver,
            delivery_count=message.delivery_count,
        )

    def settling(self, entity: str, message: ReceivedMessage, how: str, **said: Any) -> int:
        operation = self.number()
        number, token = message.sequence_number, message.tag.hex()
        self.say("settle", op=operation, entity=entity, number=number, token=token, how=how, **said)
        return operation

    def left(self, entity: str, message: ReceivedMessage, state: str) -> None:
        self.say("left", **_seen(entity, message), state=state)

    def done(self, operation: int, failure: BaseException | None = None) -> None:
        """What came of it. A failure that is a refusal says that nothing was done."""
        if failure is None:
            self.say("ok", op=operation)
        else:
            self.say("failed" if is_refusal(failure) else "unknown", op=operation, error=type(failure).__name__)

    def sent(self, operation: int, failure: BaseException | None = None) -> None:
        self.accepted_count += failure is None
        self.done(operation, failure)

    def judge(self) -> Figures:
        """The figures, if nothing is wrong with what happened so far."""
        return Figures.of(self.judged())

    def judged(self) -> History:
        """The history so far, if nothing is wrong with it."""
        self._file.flush()
        history, breaches = judge(self.path)
        assert not breaches, f"seed {self.seed}, {self.path}:\n{report(breaches)}"
        return history


def is_refusal(failure: BaseException) -> bool:
    """Whether it says for certain that nothing was done: the service saw it, and did not want it. What is out of order
    may have stored it all the same, and a lost connection says nothing."""
    return not isinstance(failure, (OperationTimeout, StoreUnavailable, OSError))


def digest_of(body: bytes) -> int:
    return zlib.crc32(body)


def body_of(chance: random.Random, largest: int) -> bytes:
    return chance.randbytes(chance.randint(1, largest))


def _seen(entity: str, message: ReceivedMessage) -> dict[str, Any]:
    body = message.body
    return {
        "entity": entity,
        "id": message.message_id or "",
        "session": message.session_id,
        "number": message.sequence_number,
        "digest": digest_of(body) if isinstance(body, bytes) else -1,
        "is_ping": message.content_type == PING_CONTENT_TYPE,
    }
