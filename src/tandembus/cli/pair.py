"""`tandembus pair`: how a primary and its secondary are doing; and which backlog queues the syphons empty.

The backlog queues of one primary are those from 0 on without a gap, also those that are made later. They are found by
attaching to them: that needs only the right to receive, and no service charges for it, so waiting costs no more than
the long polls (N11). Queues behind a gap are left alone (N3) and reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from tandembus.cli.arguments import duration, number, stacked
from tandembus.cli.failures import NOT_FOUND, Failure, without_tracking
from tandembus.cli.output import count_words, duration_words, moment_text, note, print_json, print_table, say
from tandembus.cli.target import PairTarget, pair_options
from tandembus.client import ClientFailure, ConnectionLost, connect
from tandembus.client.administration import Administration
from tandembus.clock import SystemClock
from tandembus.errors import (
    BusError,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    OperationTimeout,
    Unauthorized,
)
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES, backlog_path
from tandembus.pairing.primary_name import chosen_name, disagreement
from tandembus.pairing.status import (
    BacklogQueueStatus,
    BacklogStatus,
    SyphonState,
    UnknownPrimary,
    backlog_status,
    backlogs_in,
)
from tandembus.pairing.syphon.client_port import SharedConnection
from tandembus.pairing.syphon.settings import SyphonSettings
from tandembus.security.sas import parse_connection_string

NAME_DEFAULT: Final = "its own name, else the first label of its host, else the only one with a backlog there"
log: Final = logging.getLogger("tandembus.syphon")
USUAL_BACKLOG_QUEUES: Final = 10
NO_ANSWER: Final = (OSError, OperationTimeout)
HEADINGS: Final = ("backlog queue", "messages", "oldest", "dead letters", "receivers", "use")
PRIMARY_ANSWERS_WITHIN_S: Final = 5.0
"""Short, since the primary may well be away."""
_COLOURS: Final = {
    SyphonState.AT_WORK: "green",
    SyphonState.UNKNOWN: "yellow",
}


def _retry_interval(_: click.Context, __: click.Parameter, seconds: float) -> float:
    try:
        return SyphonSettings(retry_interval_s=seconds).retry_interval_s
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def backlog_options(name_default: str, queues_help: str) -> Callable[[Any], Any]:
    """Which backlog queues a command is about."""
    queues_help += "  [default: all from 0 on without a gap]"
    name_help = f"The primary's name in the paths of the queues.  [default: {name_default}]"
    return stacked(
        click.option("--primary-name", metavar="NAME", help=name_help),
        number("--backlog-queues", queues_help, most=MAX_BACKLOG_QUEUES),
    )


syphon_options: Final = stacked(
    click.option("--once", is_flag=True, help="End when nothing more can be moved."),
    click.option(
        "--retry-interval",
        "retry_interval_s",
        type=duration,
        callback=_retry_interval,
        default="1s",
        show_default=True,
        help="How long to wait before a destination that takes no messages is tried again; 1s to 2m; doubles up to 1m.",
    ),
)


@dataclass(frozen=True, slots=True)
class Primary:
    """What the primary answers."""

    own_name: str | None
    is_reachable: bool
    reason: str | None = None
    """Why it cannot be asked, if it cannot."""


@click.group()
def pair() -> None:
    """Look after a primary namespace and the secondary that holds its backlog."""


@pair.command()
@backlog_options(NAME_DEFAULT, "How many senders use; others are extra.")
@pair_options
async def status(target: PairTarget, primary_name: str | None, backlog_queues: int | None) -> None:
    """Show what waits in the backlog queues, and whether a syphon is at work.

    Works while the primary is away. Only a tandembus namespace reports whether a syphon is at work. Needs Manage on the
    secondary.

    \b
    Examples:
      tandembus pair status --primary "$PRIMARY" --secondary "$SECONDARY" --backlog-queues 5
    """
    primary = await _ask_primary(target)
    name = _name(primary_name, primary.own_name or target.primary_name, target)
    async with (
        Administration(target.secondary, ca_path=target.secondary_ca) as administration,
        await connect(target.secondary, ca_path=target.secondary_ca) as secondary,
    ):
        try:
            found = await backlog_status(administration, secondary, name, backlog_queues)
        except UnknownPrimary as error:
            raise Failure(
                str(error), NOT_FOUND, "--primary-name says whose backlog is meant.", "UnknownPrimary"
            ) from error
    if target.as_json:
        print_json(_document(found, primary))
    else:
        _show(found, primary, SystemClock().now())


async def _ask_primary(target: PairTarget) -> Primary:
    async with Administration(
        target.primary, ca_path=target.primary_ca, timeout_s=PRIMARY_ANSWERS_WITHIN_S
    ) as administration:
        try:
            return Primary(await administration.namespace_name(), is_reachable=True)
        except Unauthorized as error:
            return Primary(None, is_reachable=True, reason=without_tracking(str(error)))
        except (BusError, ConnectionLost) as error:
            return Primary(None, is_reachable=False, reason=without_tracking(str(error)))


def _name(given: str | None, own: str | None, target: PairTarget) -> str | None:
    host = parse_connection_string(target.primary).host
    if given is None and (difference := disagreement(own, host)) is not None:
        note(difference)
    return _chosen(given, own, host)


def _document(found: BacklogStatus, primary: Primary) -> dict[str, object]:
    return {
        "primary": {"name": found.primary_name, "is_reachable": primary.is_reachable, "reason": primary.reason},
        "syphon": found.syphon.value,
        "messages": found.messages,
        "dead_letters": found.dead_letters,
        "is_limited": found.is_limited,
        "oldest_at": moment_text(found.oldest_at),
        "queues": [{**asdict(queue), "oldest_at": moment_text(queue.oldest_at)} for queue in found.queues],
        "missing": list(found.missing),
        "other_primaries": list(found.other_primaries),
    }


def _show(found: BacklogStatus, primary: Primary, now: float) -> None:
    say("primary  ", (found.primary_name, "bold"), "  ", _answer(primary))
    say("syphon   ", (found.syphon.value, _COLOURS.get(found.syphon, "bold red")), _more(found))
    limited = found.is_limited
    messages = _counted(found.messages, "message", limited)
    say("backlog  ", f"{messages}, {_counted(found.dead_letters, 'dead letter', limited)}")
    waits = any(queue.messages for queue in found.queues if not queue.is_extra)
    if waits and found.syphon is SyphonState.NONE:
        say("         `tandembus syphon` brings them home")
    if found.missing:
        say("missing  ", (", ".join(str(index) for index in found.missing), "bold red"), ": pairing makes them")
    if found.other_primaries:
        say("others   ", f"{', '.join(found.other_primaries)}: backlogs of other primaries, not shown here")
    say()
    if not found.queues:
        say(("no backlog queues: no client has been paired yet", "dim"))
        return
    print_table(HEADINGS, [_row(queue, now) for queue in found.queues])


def _more(found: BacklogStatus) -> str:
    if found.syphon is SyphonState.UNKNOWN:
        return ""
    in_use = [queue for queue in found.queues if not queue.is_extra]
    served = len([queue for queue in in_use if queue.receivers])
    return f" ({served} of {len(in_use)} queues)"


def _answer(primary: Primary) -> tuple[str, str]:
    if primary.reason is None:
        return "reachable", "green"
    if primary.is_reachable:
        return f"reachable, but its key or policy is refused: {primary.reason}", "yellow"
    return f"not reachable: {primary.reason}", "bold red"


def _counted(count: int | None, noun: str, is_limited: bool = False) -> str:
    if count is None:
        return f"unknown number of {noun}s"
    return f"{'at least ' if is_limited else ''}{count:,} {noun}{'' if count == 1 else 's'}"


def _row(queue: BacklogQueueStatus, now: float) -> list[object]:
    age = None if queue.oldest_at is None else f"{duration_words(max(0, round(now - queue.oldest_at)))} ago"
    use = ("extra: nobody uses it", "yellow") if queue.is_extra else "in use"
    messages = count_words(queue.messages, queue.is_limited)
    return [queue.path, messages, age, count_words(queue.dead_letters, queue.is_limited), queue.receivers, use]


class BacklogDiscovery:
    """Knows the primary's name, and how many of its backlog queues have been found so far."""

    def __init__(
        self, target: PairTarget, given_name: str | None, secondary: SharedConnection, answer_timeout_s: float
    ) -> None:
        self._target: Final = target
        self._given_name: Final = given_name
        self._secondary: Final = secondary
        self._answer_timeout_s: Final = answer_timeout_s
        self._name: str | None = None
        self._is_name_settled = False
        self._count = 0
        self._was_empty = False

    @property
    def name(self) -> str:
        assert self._name is not None
        return self._name

    async def learn_name(self) -> None:
        """Asks the primary, unless a name was given. While it does not answer, the name comes from its data folder or
        its host, else from the backlog queues that are there, if all are of one primary."""
        if self._is_name_settled:
            return
        host = parse_connection_string(self._target.primary).host
        own = await self._own_name() if self._given_name is None else None
        own = own or self._target.primary_name
        name = _chosen(self._given_name, own, host) or await self._only_name()
        if name is None:
            raise click.UsageError(f"{host} does not report the name of the primary namespace: give --primary-name.")
        if name != self._name:
            self._name, self._was_empty = name, False
            if (difference := disagreement(own, host)) is not None:
                log.warning("%s", difference)

    async def _own_name(self) -> str | None:
        target = self._target
        self._is_name_settled = True
        try:
            async with Administration(
                target.primary, ca_path=target.primary_ca, timeout_s=self._answer_timeout_s
            ) as primary:
                return await primary.namespace_name()
        except ClientFailure as error:
            self._is_name_settled = not isinstance(error, NO_ANSWER)
            if self._name is None:
                log.warning("the name of the primary is unavailable: %s", error)
            return None

    async def _only_name(self) -> str | None:
        """The name of the only primary that has backlog queues there; looking takes Manage."""
        target = self._target
        try:
            async with Administration(
                target.secondary, ca_path=target.secondary_ca, timeout_s=self._answer_timeout_s
            ) as secondary:
                names = list(backlogs_in([queue.name async for queue in secondary.queues()]))
        except ClientFailure as error:
            log.warning("the list of backlog queues on the secondary is unavailable: %s", error)
            return None
        return names[0] if len(names) == 1 else None

    async def look(self) -> list[str]:
        """Returns the queues that were not there at the last look."""
        if self._count == 0:
            await self.learn_name()
        found: list[str] = []
        while self._count < MAX_BACKLOG_QUEUES and await self.is_there(self._count):
            found.append(backlog_path(self.name, self._count))
            self._count += 1
        if self._count == 0 and not self._was_empty:
            self._was_empty = True
            log.warning("there are no backlog queues of '%s' yet; is it the right --primary-name?", self.name)
        return found

    async def report_extra(self) -> None:
        """Warns of queues behind a gap."""
        extra = [index for index in range(self._count + 1, USUAL_BACKLOG_QUEUES) if await self.is_there(index)]
        if extra:
            log.warning(
                "%s is missing: what is in those behind it (%s) stays there; --backlog-queues %d empties them, too",
                backlog_path(self.name, self._count),
                ", ".join(str(index) for index in extra),
                extra[-1] + 1,
            )

    async def is_there(self, index: int) -> bool:
        try:
            receiver = await (await self._secondary.get()).receiver(backlog_path(self.name, index))
        except EntityNotFound:
            return False
        except (EntityDisabled, InvalidOperation):
            return True  # Its syphon will report why nobody can receive from it now.
        await receiver.close()
        return True


def _chosen(given: str | None, own: str | None, host: str) -> str | None:
    try:
        return chosen_name(given, own, host)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
