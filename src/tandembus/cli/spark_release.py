"""`tandembus spark release`."""

from __future__ import annotations

from typing import Final

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import sub_queue_option
from tandembus.cli.failures import NOT_FOUND, Failure
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.target import Target, namespace_options
from tandembus.client import SubQueue, connect
from tandembus.client.addresses import address_of
from tandembus.client.reservations import Reservations
from tandembus.errors import NotSupported

PLAIN: Final = (
    "Only tandembus namespaces have them, unless started with --no-reservations. With backend=azure a query defers its "
    "messages: start it again to finish them."
)


@click.command()
@entity_argument
@click.option("--owner", metavar="NAME", help="Whose messages to hand back: the option `owner` of the query.")
@sub_queue_option("Messages of this sub-queue, for a query with the option `subQueue`.")
@namespace_options
async def release(target: Target, entity: str, owner: str | None, sub_queue: str | None) -> None:
    """Hand messages back that a retired query has reserved.

    Without --owner nothing is changed: it lists who has reserved messages of the entity, and how many. With it the
    owner is given up, and its messages can be received again, in their old places. A query that still runs under that
    owner ends; when it is started anew it reads what is there then, so some messages may be read twice.

    ENTITY is a queue or TOPIC/subscriptions/NAME. An owner with 0 messages is that of a query that runs, or of one that
    has ended well. Needs no Spark.

    \b
    Examples:
      tandembus spark release orders
      tandembus spark release orders --owner billing
      tandembus spark release orders --sub-queue dead-letter

    \b
    JSON: {"entity", "owners": [{"owner", "message_count"}]}; with --owner {"entity", "owner", "released"}
    """
    entity = address_of(entity, None if sub_queue is None else SubQueue(sub_queue))
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        reservations = await namespace.reservations(entity)
        try:
            if owner is None:
                await _list(target, entity, reservations)
            else:
                await _release(target, entity, owner, reservations)
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


async def _release(target: Target, entity: str, owner: str, reservations: Reservations) -> None:
    known = {one.owner for one in await reservations.owners()}
    if owner not in known:
        raise Failure(
            f"'{owner}' owns nothing of {entity}.",
            NOT_FOUND,
            f"`tandembus spark release {entity}` lists the owners there are.",
            "OwnerNotFound",
        )
    released = await reservations.release(owner)
    if target.as_json:
        print_json({"entity": entity, "owner": owner, "released": released})
    else:
        say(("released", "green"), f" {counted(released, 'message')} of ", (entity, "bold"), f", reserved by {owner}")
