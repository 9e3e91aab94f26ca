"""From failures to exit codes and advice. People get a sentence and what to do next, never a traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from tandembus.cli.printable import printable
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    MessageNotFound,
    MessageTooLarge,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreUnavailable,
    Unauthorized,
)

FAILED: Final = 1
WRONG_USAGE: Final = 2
NOT_FOUND: Final = 3
NOT_AUTHORIZED: Final = 4
UNREACHABLE: Final = 5
EXISTS_ALREADY: Final = 6
TRY_LATER: Final = 7
NOT_PROVEN: Final = 8
WARNINGS: Final = 9
INTERRUPTED: Final = 130

ACCEPTED: Final = "accepted"
"""Where a command that stops half-way leaves its count, for a program that reads JSON."""

_TRACKING: Final = re.compile(r"\s*(SubCode=|TrackingId:).*", re.DOTALL)
"""What services append for their own logs."""

_INJECTED: Final = "(injected fault '"
_HEAL: Final = "Somebody made this fail on purpose: `tandembus fault list` shows it, `tandembus fault clear` heals it."

_TRUST: Final = "Give the certificate of its authority with --ca; `tandembus ca` names the file."

_TABLE: Final = (
    # The first match counts: a child stands above its parent.
    (
        EntityNotFound,
        NOT_FOUND,
        "`tandembus queue list` and `tandembus topic list` show what there is; `create` in place of `list` makes one.",
    ),
    (MessageNotFound, NOT_FOUND, "`tandembus peek` shows which sequence numbers there are."),
    (
        Unauthorized,
        NOT_AUTHORIZED,
        "Check the key in the connection string, and that its policy has the right needed.",
    ),
    (
        EntityAlreadyExists,
        EXISTS_ALREADY,
        "`show` tells what it is like now, `update` changes it.",
    ),
    (
        OperationTimeout,
        UNREACHABLE,
        "Is the namespace busy or stopped? The outcome may be unknown: look before repeating.",
    ),
    (ServerBusy, TRY_LATER, "Wait ten seconds, then repeat."),
    (
        EntityDisabled,
        TRY_LATER,
        "`tandembus queue update NAME --status Active` enables it again; likewise `topic update NAME`, and "
        "`subscription update TOPIC NAME`.",
    ),
    (QuotaExceeded, TRY_LATER, "Receive or purge messages, or give the entity a larger --max-size-mb."),
    (SessionCannotBeLocked, TRY_LATER, "Another receiver holds this session: wait until it is done, then repeat."),
    (SessionLockLost, TRY_LATER, "What was not settled is back in the session: repeat."),
    (StoreUnavailable, TRY_LATER, "Look at the namespace's log and its disk, then repeat."),
    (MessageTooLarge, FAILED, "Send a smaller body, or smaller batches (--batch)."),
    (InvalidOperation, FAILED, ""),
    (BusError, FAILED, ""),
    (
        ConnectionError,
        UNREACHABLE,
        "Is the namespace running (`tandembus serve`), and does the connection string belong to it?",
    ),
    (OSError, FAILED, ""),
)


_LOOK: Final = {
    "queue": "`tandembus queue list` shows what there is; `tandembus queue create` makes one.",
    "topic": "`tandembus topic list` shows what there is; `tandembus topic create` makes one.",
    "subscription": "`tandembus subscription list TOPIC` shows what there is; `subscription create` makes one.",
    "rule": "`tandembus subscription list TOPIC` and `tandembus rule list TOPIC SUBSCRIPTION` show what there is.",
    "policy": "`tandembus policy list` shows what there is; `tandembus policy create` makes one.",
    "fault": "`tandembus fault list` shows which there are. Only tandembus namespaces have faults.",
}
"""What to do about something that is not there, by the command that looked for it."""

_TAKEN: Final = {
    "queue": "`tandembus queue show` tells its settings, `queue update` changes them.",
    "topic": "`tandembus topic show` tells its settings, `topic update` changes them.",
    "subscription": "`tandembus subscription show` tells its settings, `subscription update` changes them.",
    "rule": "`tandembus rule show` tells what it is, `rule add --replace` puts another in its place.",
    "policy": "`tandembus policy show` tells its keys, `policy regenerate` makes new ones.",
}
"""What to do about a name that is taken, likewise."""

_NOT_LIKE_THIS: Final = {
    "send": "Queues and topics can be sent to; where sessions are required, with --session-id.",
    "receive": "Queues and TOPIC/subscriptions/NAME can be received from; where sessions are required, and only there, "
    "with --session ID or --next-session.",
    "session": "Only queues and subscriptions that were created with --requires-session have sessions.",
}
"""What to do about an entity of another kind than the command takes it for."""

_ADVICE: Final[Mapping[type[Exception], Mapping[str, str]]] = {
    EntityNotFound: _LOOK,
    EntityAlreadyExists: _TAKEN,
    InvalidOperation: _NOT_LIKE_THIS,
    QuotaExceeded: {"fault": "`tandembus fault clear` ends those there are."},
}


class Failure(Exception):
    """A command that did not do what was asked, with the exit code and the advice that go with it."""

    def __init__(
        self,
        message: str,
        exit_code: int = FAILED,
        advice: str = "",
        kind: str = "Failure",
        accepted: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.advice = advice
        self.kind = kind
        self.accepted = accepted
        """How many messages the namespace had accepted until then, at least; None where that means nothing."""

    def show(self, as_json: bool) -> None:
        if as_json:
            facts = {"kind": self.kind, "message": self.message, "exit_code": self.exit_code}
            progress = {} if self.accepted is None else {"accepted": self.accepted}
            click.echo(json.dumps({"error": {**facts, "advice": self.advice or None, **progress}}), err=True)
            return
        click.echo(click.style("Error: ", fg="red", bold=True) + printable(self.message), err=True)
        if self.advice:
            click.echo(click.style("Try:   ", fg="cyan") + printable(self.advice), err=True)


def without_tracking(text: str) -> str:
    return _TRACKING.sub("", text)


def failure_from(error: Exception, command: str | None = None) -> Failure:
    """The failure to show for an exception of the client or the broker, with advice that fits the command."""
    if "certificate verify failed" in str(error).lower():
        return Failure(str(error), UNREACHABLE, _TRUST, "CertificateNotTrusted")
    for kind, exit_code, advice in _TABLE:
        if isinstance(error, kind):
            text = without_tracking(str(error)) or type(error).__name__
            fitting = _HEAL if _INJECTED in text else _ADVICE.get(kind, {}).get(command or "", advice)
            return Failure(text, exit_code, fitting, type(error).__name__)
    raise error


@contextmanager
def report_failures(context: click.Context) -> Iterator[None]:
    """Around a command: expected failures get their exit code, Ctrl-C ends quietly."""
    try:
        yield
    except BrokenPipeError:
        raise  # The reader of our output went away: click ends without a word.
    except click.UsageError as error:
        if not context.meta.get("json", False):
            raise
        path = context.command_path if error.ctx is None else error.ctx.command_path
        Failure(error.format_message(), WRONG_USAGE, f"`{path} --help` tells the options.", "WrongUsage").show(True)
        context.exit(WRONG_USAGE)
    except (Failure, BusError, OSError) as error:
        failure = error if isinstance(error, Failure) else failure_from(error, context.invoked_subcommand)
        failure.accepted = context.meta.get(ACCEPTED)
        failure.show(context.meta.get("json", False))
        context.exit(failure.exit_code)
    except (KeyboardInterrupt, click.Abort):
        if context.meta.get("json", False) and ACCEPTED in context.meta:
            Failure("Interrupted.", INTERRUPTED, kind="Interrupted", accepted=context.meta[ACCEPTED]).show(True)
        context.exit(INTERRUPTED)
