"""`tandembus topology`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final, cast

import click
from rich.text import Text

from tandembus.cli.administering import administration
from tandembus.cli.arguments import checked_path
from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.printable import printable
from tandembus.cli.target import Target, namespace_options
from tandembus.client.topology import Record, Topology, topology_of

BROKER_HEADINGS: Final = ("broker", "process", "state", "stores", "restarts", "last end")
STORE_HEADINGS: Final = ("store", "broker", "state", "epoch", "reason")
FRONT_END_HEADINGS: Final = ("front end", "process", "state", "connections", "restarts", "last end")
ENTITY_HEADINGS: Final = ("entity", "kind", "availability", "fragments: stores")
FRAGMENT_HEADINGS: Final = ("fragment", "store", "broker", "state", "reason")
GOOD: Final = ("ready", "available", "Available")


@click.command()
@click.option("--entity", metavar="ENTITY", callback=checked_path, help="Only the fragments of this one, one by one.")
@namespace_options
async def topology(target: Target, entity: str | None) -> None:
    """Show the namespace's processes and stores, and which fragment is where.

    A plain entity is in one store, a partitioned one has 16 fragments spread over all of them. This needs a tandembus
    namespace.

    \b
    Examples:
      tandembus topology
      tandembus topology --entity orders
      tandembus topology --json

    \b
    JSON: {"namespace", "brokers": [{"index", "pid", "state", "store", "stores", "epoch", "restarts", "last_exit"}],
           "stores": [{"index", "broker", "state", "epoch", "reason"}],
           "front_ends": [{"index", "pid", "state", "connections", "restarts", "last_exit"}],
           "entities": [{"path", "kind", "partitioned", "availability",
                         "fragments": [{"index", "store", "broker", "state", "reason"}]}]}
    """
    async with administration(target) as namespace:
        found = await topology_of(namespace.requests, entity)
    if target.as_json:
        print_json(asdict(found))
    elif entity is not None:
        for each in found.entities:
            _show_fragments(each)
    else:
        _show_all(found)


def _show_all(found: Topology) -> None:
    print_table(
        BROKER_HEADINGS,
        [
            [each.get("index"), _process(each), _state(each), _numbers(each.get("stores")), *_lives(each)]
            for each in found.brokers
        ],
    )
    say()
    print_table(STORE_HEADINGS, [_row(each, "index", "broker", "state", "epoch", "reason") for each in found.stores])
    say()
    print_table(
        FRONT_END_HEADINGS,
        [
            [each.get("index"), _process(each), _state(each), each.get("connections"), *_lives(each)]
            for each in found.front_ends
        ],
    )
    say()
    if not found.entities:
        say(("no queues and no topics", "dim"))
        return
    print_table(
        ENTITY_HEADINGS,
        [
            [each.get("path"), each.get("kind"), _coloured(each.get("availability")), _placement(each)]
            for each in found.entities
        ],
    )


def _show_fragments(entity: Record) -> None:
    say((str(entity.get("path")), "bold"), "  ", str(entity.get("kind")), "  ", _styled(entity.get("availability")))
    rows = [_row(each, "index", "store", "broker", "state", "reason") for each in _fragments(entity)]
    print_table(FRAGMENT_HEADINGS, rows)


def _placement(entity: Record) -> Text:
    """The store of each fragment in order; those out of reach stand out."""
    parts = Text()
    for fragment in _fragments(entity):
        parts.append(" " if parts else "")
        parts.append(str(fragment.get("store")), None if fragment.get("state") in GOOD else "bold red")
    return parts


def _fragments(entity: Record) -> Sequence[Record]:
    found = entity.get("fragments")
    return [cast(Record, each) for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _row(record: Record, *names: str) -> list[object]:
    return [_coloured(record.get(name)) if name == "state" else record.get(name) for name in names]


def _lives(record: Record) -> list[object]:
    return [record.get("restarts"), record.get("last_exit")]


def _process(record: Record) -> object:
    """A number to copy, so without separators."""
    pid = record.get("pid")
    return None if pid is None else str(pid)


def _state(record: Record) -> Text:
    return _coloured(record.get("state"))


def _coloured(value: object) -> Text:
    return Text(*_styled(value))


def _styled(value: object) -> tuple[str, str]:
    return printable(str(value)), "green" if value in GOOD else "bold red"


def _numbers(value: object) -> str:
    return " ".join([str(each) for each in value]) if isinstance(value, list) else ""
