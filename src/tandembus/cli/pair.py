"""`tandembus pair`: how a primary and its secondary are doing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import click
from rich.text import Text

from tandembus.cli.failures import NOT_FOUND, Failure, without_tracking
from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.pair_target import PairTarget, pair_options
from tandembus.cli.parameters import count_words, duration_words, moment_text
from tandembus.cli.printable import printable
from tandembus.client import ConnectionLost, connect
from tandembus.client.administration import Administration
from tandembus.clock import SystemClock
from tandembus.errors import BusError, Unauthorized
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES
from tandembus.pairing.primary_name import chosen_name, disagreement
from tandembus.pairing.status import BacklogQueueStatus, BacklogStatus, SyphonState, UnknownPrimary, backlog_status
from tandembus.security.sas import parse_connection_string

HEADINGS: Final = ("backlog queue", "messages", "oldest", "dead letters", "receivers", "use")
PRIMARY_ANSWERS_WITHIN_S: Final = 5.0
"""It may well be away: nobody should wait for it as long as for a namespace that is needed."""
_COLOURS: Final = {
    SyphonState.AT_WORK: "green",
    SyphonState.UNKNOWN: "yellow",
}


@dataclass(frozen=True, slots=True)
class Primary:
    """What it answers."""

    own_name: str | None
    is_reachable: bool
    reason: str | None = None
    """Why it cannot be asked, if it cannot."""


@click.group()
def pair() -> None:
    """Look after a primary namespace and the secondary that holds its backlog."""


@pair.command()
@click.option(
    "--primary-name",
    metavar="NAME",
    help="Name of the primary in the paths.  [default: its own name, else the first label of its host, else the only "
    "one there]",
)
@click.option(
    "--backlog-queues",
    type=click.IntRange(1, MAX_BACKLOG_QUEUES),
    metavar="N",
    help="How many senders use; others are extra.  [default: all from 0 on without a gap]",
)
@pair_options
async def status(target: PairTarget, primary_name: str | None, backlog_queues: int | None) -> None:
    """Show what waits in the backlog queues, and whether a syphon is at work.

    Works while the primary is away. Whether a syphon is at work only a tandembus namespace can tell, and not of
    `tandembus spark syphon`: of that one it tells what it has reserved. Needs Manage on the secondary.

    \b
    Examples:
      tandembus pair status
      tandembus pair status --primary "$PRIMARY" --secondary "$SECONDARY" --backlog-queues 5

    \b
    JSON: {"primary": {"name", "is_reachable", "reason"}, "syphon", "messages", "dead_letters", "is_limited",
           "reserved", "oldest_at", "queues": [{"index", "path", "messages", "dead_letters", "oldest_at", "receivers",
           "reserved", "is_extra", "is_limited"}],
           "missing": [index], "other_primaries": [name]}
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
        click.echo(f"{click.style('Note:  ', fg='yellow')}{printable(difference)}", err=True)
    try:
        return chosen_name(given, own, host)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


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
    use = Text("extra: nobody uses it", "yellow") if queue.is_extra else Text("in use")
    messages = count_words(queue.messages, queue.is_limited)
    return [queue.path, messages, age, count_words(queue.dead_letters, queue.is_limited), queue.receivers, use]
