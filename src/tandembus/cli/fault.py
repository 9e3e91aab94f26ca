"""`tandembus fault`: make a part of a namespace fail on purpose, and heal it again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict
from typing import Final

import click

from tandembus.cli.administering import administration
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.parameters import duration, duration_words
from tandembus.cli.target import Target, namespace_options
from tandembus.client.durations import NEVER
from tandembus.client.faults import KINDS, Faults, InjectedFault

HEADINGS: Final = ("fault", "target", "kind", "latency", "probability", "ends in", "state")
MAX_ID_LENGTH: Final = 64
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_SCOPES: Final = ("namespace", "entity/", "fragment/", "broker/", "store/")


def _checked_target(_: click.Context, __: click.Parameter, text: str) -> str:
    if text != "namespace" and not any(text.startswith(scope) for scope in _SCOPES[1:]):
        raise click.BadParameter(
            f"{text!r} is no target: write namespace, entity/NAME, fragment/NAME/INDEX, broker/INDEX or store/INDEX"
        )
    return text


def _checked_id(_: click.Context, __: click.Parameter, text: str | tuple[str, ...] | None) -> object:
    for each in (text,) if isinstance(text, str) else text or ():
        if not _ID.fullmatch(each):
            raise click.BadParameter("a fault's id has 1 to 64 letters, digits, '.', '_' and '-'")
    return text


def _finite(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and (seconds <= 0 or seconds == NEVER):
        raise click.BadParameter("write how long, such as 30s or 5m")
    return seconds


def _chance(text: str) -> float:
    """`0.25`, or `25%`."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1.0:
        raise click.BadParameter(f"{text!r} is no probability: write a number above 0 and up to 1, or 25%")
    return value


@click.group()
def fault() -> None:
    """Make a part of a namespace fail on purpose, and heal it again.

    See what an outage does to your application before there is one.

    \b
    What can fail:
      namespace              everything: as if the service were gone; only this command still gets through
      entity/NAME            a queue, a topic with its subscriptions, or TOPIC/subscriptions/NAME
      fragment/NAME/3        one of the 16 fragments of a partitioned entity (0 to 15)
      broker/1, store/1      a message broker or messaging store, with all that is there (counted from 0)
    How it fails:
      unavailable            sends fail with an error that clients retry; receivers stay connected and get nothing
      slow                   everything takes --latency longer; of a store, every commit does
      throttled              sends are refused as busy (ServerBusy); receiving and settling go on
      disk-full              sends are refused for lack of room; receiving and settling go on

    \b
    A failover drill:
      tandembus fault add entity/orders unavailable --for 2m
      tandembus fault list
      tandembus fault clear

    \b
    Faults are forgotten when the namespace is stopped. docs/faults.md tells more.
    JSON of a fault: {"id", "target", "kind", "latency_ms", "probability", "for_s", "ends_in_s", "state", "started_at"}
    """


@fault.command("add")
@click.argument("fault_target", metavar="TARGET", callback=_checked_target)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--latency", type=duration, callback=_finite, help="How much longer everything takes; of a slow one.")
@click.option(
    "--probability", type=_chance, metavar="P", help="Of being hit, for each operation: 0.25 or 25%. Default: always."
)
@click.option(
    "--for", "for_s", type=duration, callback=_finite, help="It ends by itself after this time. Default: when cleared."
)
@click.option(
    "--id",
    "fault_id",
    callback=_checked_id,
    help="What to call it; a fault with this id is replaced. Default: made of target and kind.",
)
@namespace_options
async def add(
    target: Target,
    fault_target: str,
    kind: str,
    latency: float | None,
    probability: float | None,
    for_s: float | None,
    fault_id: str | None,
) -> None:
    """Make TARGET fail from now on.

    An entity that is not there yet may be named: the fault waits for it.

    \b
    Examples:
      tandembus fault add entity/orders unavailable --for 30s
      tandembus fault add fragment/orders/3 throttled
      tandembus fault add store/1 slow --latency 250ms
      tandembus fault add broker/0 unavailable --probability 10%
      tandembus fault add namespace unavailable --id drill

    JSON: the fault.
    """
    if (kind == "slow") != (latency is not None):
        needs = "needs --latency, such as --latency 250ms" if kind == "slow" else "has no --latency: that is for slow"
        raise click.UsageError(f"A fault of kind {kind} {needs}.")
    latency_ms = None if latency is None else max(round(latency * 1000), 1)
    async with administration(target) as namespace:
        added = await Faults(namespace.requests).put(
            fault_id or default_id(fault_target, kind),
            fault_target,
            kind,
            latency_ms=latency_ms,
            probability=probability,
            for_s=for_s,
        )
    if target.as_json:
        print_json(asdict(added))
        return
    say(("added", "yellow"), " ", (added.id, "bold"), f": {added.target} is {_words(added)}")
    if added.state == "pending":
        say(("it waits: there is no such entity yet", "dim"))
    say((f"`tandembus fault clear {added.id}` heals it", "dim"))


@fault.command("list")
@namespace_options
async def list_faults(target: Target) -> None:
    """List the faults there are, and how long each still lasts.

    JSON: one fault per line.
    """
    async with administration(target) as namespace:
        found = await Faults(namespace.requests).all()
    if target.as_json:
        for each in found:
            print_json(asdict(each))
    elif not found:
        say(("no faults: nothing fails on purpose; `tandembus fault add TARGET KIND` makes something fail", "dim"))
    else:
        print_table(HEADINGS, [_row(each) for each in found])


@fault.command("clear")
@click.argument("fault_ids", metavar="[ID]...", nargs=-1, callback=_checked_id)
@namespace_options
async def clear(target: Target, fault_ids: tuple[str, ...]) -> None:
    """Heal what these faults broke, at once; without an ID, everything.

    \b
    Examples:
      tandembus fault clear
      tandembus fault clear drill

    \b
    JSON: {"cleared"}: how many
    """
    async with administration(target) as namespace:
        faults = Faults(namespace.requests)
        if fault_ids:
            for fault_id in fault_ids:
                await faults.remove(fault_id)
            cleared = len(fault_ids)
        else:
            cleared = await faults.clear()
    if target.as_json:
        print_json({"cleared": cleared})
    elif cleared:
        say(("cleared", "green"), " ", counted(cleared, "fault"))
    else:
        say(("there were no faults", "dim"))


def default_id(target: str, kind: str) -> str:
    """The same for the same, so that adding it again only changes it."""
    made = _NOT_IN_IDS.sub("-", f"{target}-{kind}")
    if len(made) <= MAX_ID_LENGTH:
        return made
    digest = hashlib.sha256(f"{target} {kind}".encode()).hexdigest()[:8]
    return f"{made[: MAX_ID_LENGTH - 9]}-{digest}"


def _words(fault: InjectedFault) -> str:
    words = fault.kind
    if fault.latency_ms is not None:
        words += f" by {_latency(fault.latency_ms)}"
    if fault.probability < 1.0:
        words += f" with a probability of {fault.probability:.3g}"
    return words + (f" for {duration_words(fault.for_s)}" if fault.for_s is not None else "")


def _row(fault: InjectedFault) -> list[object]:
    latency = None if fault.latency_ms is None else _latency(fault.latency_ms)
    ends = "when cleared" if fault.ends_in_s is None else duration_words(float(round(fault.ends_in_s)))
    chance = "always" if fault.probability >= 1.0 else f"{fault.probability:.3g}"
    return [fault.id, fault.target, fault.kind, latency, chance, ends, fault.state]


def _latency(latency_ms: int) -> str:
    return f"{latency_ms} ms" if latency_ms < 1000 else f"{latency_ms / 1000:g} s"
