"""`tandembus spark release`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import sub_queue_option
from tandembus.cli.failures import NOT_FOUND, Failure
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.target import Target, namespace_options
from tandembus.client import SubQueue, connect
from tandembus.client.addresses import address_of
from tandembus.client.reservations import OwnerInfo, Reservations
from tandembus.errors import InvalidArgument, NotSupported
from tandembus.spark.source.ledger import settle_stopped
from tandembus.spark.source.offsets import COMMITS, NONE_YET, OFFSETS, done_at, newest, offsets_in
from tandembus.spark.source.options import parse_options
from tandembus.spark.source.ranges import FragmentRanges

PLAIN: Final = (
    "Only tandembus namespaces have them, unless started with --no-reservations. With backend=azure a query defers its "
    "messages: start it again to finish them."
)
REPEATED: Final = (
    "Stop the query, and give its checkpoint with --checkpoint PATH: what it has done is settled, and the rest handed "
    "back. With --without-checkpoint all is handed back, and what is done already comes again."
)
LOCAL: Final = "file:"
TRANSFER: Final = "/x-servicebus-transfer/"
"""In the path of a backlog queue."""
SYPHON: Final = "syphon"
"""As which the syphon of earlier versions reserved messages of backlog queues."""


@click.command()
@entity_argument
@click.option("--owner", metavar="NAME", help="Whose messages to hand back: the option `owner` of the query.")
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="The checkpoint of the query, which has stopped: what is done by it is settled, not handed back.",
)
@click.option(
    "--without-checkpoint", is_flag=True, help="Hand back also what the query may have done: it comes again then."
)
@sub_queue_option("Messages of this sub-queue, for a query with the option `subQueue`.")
@namespace_options
async def release(
    target: Target,
    entity: str,
    owner: str | None,
    checkpoint: str | None,
    without_checkpoint: bool,
    sub_queue: str | None,
) -> None:
    """Hand messages back that a retired query has reserved.

    Without --owner nothing is changed: it lists who has reserved messages of the entity, and how many. With it the
    owner is given up, and its messages can be received again, in their old places.

    Stop the query first. A query settles a batch when it plans the next one, so a query that was stopped may have
    reserved messages that it has done: its checkpoint shows which. They are settled with --checkpoint; without it the
    command refuses to hand them back, unless --without-checkpoint says that they may come again. The syphon's messages
    need neither: what it has moved is settled.

    ENTITY is a queue or TOPIC/subscriptions/NAME. An owner with 0 messages is that of a query that runs, or of one that
    has ended well. Needs no Spark.

    \b
    Examples:
      tandembus spark release orders
      tandembus spark release orders --owner billing --checkpoint /var/lib/billing
      tandembus spark release orders --owner billing --without-checkpoint
      tandembus spark release orders --sub-queue dead-letter

    \b
    JSON: {"entity", "owners": [{"owner", "message_count"}]}; with --owner {"entity", "owner", "settled", "released"}
    """
    if checkpoint is not None and (owner is None or without_checkpoint):
        raise click.UsageError("--checkpoint goes with --owner, and not with --without-checkpoint.")
    entity = address_of(entity, None if sub_queue is None else SubQueue(sub_queue))
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        reservations = await namespace.reservations(entity)
        try:
            if owner is None:
                await _list(target, entity, reservations)
                return
            known = await _owner(entity, owner, reservations)
            settled = 0
            if checkpoint is not None:
                done = done_ranges(checkpoint, target.connection_string, entity, owner)
                settled = await settle_stopped(reservations, owner, done)
            elif known.message_count and not without_checkpoint and not _is_syphons(entity, owner):
                raise Failure(
                    f"{counted(known.message_count, 'message')} of {entity} are reserved by '{owner}', and some of "
                    "them may be done: only the query's checkpoint shows which.",
                    advice=REPEATED,
                    kind="CheckpointNeeded",
                )
            _tell(target, entity, owner, settled, await reservations.release(owner))
        except NotSupported:
            raise Failure(f"{entity} has no reservations.", advice=PLAIN, kind="NotSupported") from None


async def _list(target: Target, entity: str, reservations: Reservations) -> None:
    owners = sorted(await reservations.owners(), key=lambda one: one.owner)
    if target.as_json:
        records = [{"owner": one.owner, "message_count": one.message_count} for one in owners]
        print_json({"entity": entity, "owners": records})
    elif owners:
        print_table(("owner", "reserved messages"), ((one.owner, one.message_count) for one in owners))
    else:
        say("nobody has reserved messages of ", (entity, "bold"))


async def _owner(entity: str, owner: str, reservations: Reservations) -> OwnerInfo:
    for known in await reservations.owners():
        if known.owner == owner:
            return known
    raise Failure(
        f"'{owner}' owns nothing of {entity}.",
        NOT_FOUND,
        f"`tandembus spark release {entity}` lists the owners there are.",
        "OwnerNotFound",
    )


def _is_syphons(entity: str, owner: str) -> bool:
    return owner == SYPHON and TRANSFER in entity.lower()


def done_ranges(checkpoint: str, connection_string: str, entity: str, owner: str) -> FragmentRanges:
    """The entity's messages in the last batch of a checkpoint, if that batch is done, and what was left of those
    before. Raises `InvalidArgument` for what is not this query's checkpoint."""
    if "://" in checkpoint.removeprefix(LOCAL + "//"):
        raise InvalidArgument(
            f"{checkpoint} is not on this machine: copy its folders offsets and commits, and give that."
        )
    folder = Path(checkpoint.removeprefix(LOCAL + "//").removeprefix(LOCAL))
    if not (folder / OFFSETS).is_dir():
        raise InvalidArgument(f"{checkpoint} is no checkpoint of a query: it has no folder '{OFFSETS}'.")
    planned, done = (
        newest([each.name for each in (folder / log).iterdir()] if (folder / log).is_dir() else ())
        for log in (OFFSETS, COMMITS)
    )
    if planned == NONE_YET:
        return {}
    offsets = offsets_in((folder / OFFSETS / str(planned)).read_text(), owner)
    namespace = parse_options({"connection": connection_string}).namespace()
    ours = [offset for offset in offsets if offset["n"] == namespace]
    if not ours:
        others = ", ".join(sorted({str(offset["n"]) for offset in offsets}))
        raise InvalidArgument(
            f"{checkpoint} is the checkpoint of another query: it has nothing of the owner '{owner}' and the namespace "
            f"'{namespace}'" + (f", but of {others}." if others else ".")
        )
    found: FragmentRanges = {}
    for offset in ours:
        for name, ranges in done_at(offset, is_done=planned == done).items():
            if name.lower() == entity.lower():
                found |= ranges
    return found


def _tell(target: Target, entity: str, owner: str, settled: int, released: int) -> None:
    if target.as_json:
        print_json({"entity": entity, "owner": owner, "settled": settled, "released": released})
        return
    if settled:
        say(("settled", "green"), f" {counted(settled, 'message')} that the query had done")
    say(("released", "green"), f" {counted(released, 'message')} of ", (entity, "bold"), f", reserved by {owner}")
