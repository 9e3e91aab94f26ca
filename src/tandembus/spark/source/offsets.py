"""What Spark writes into its log: not how far a stream came, but which messages its last batch holds.

`{"v": 1, "n": namespace, "o": owner, "e": batch counter, "b": {entity: {fragment: [[first, last], ...]}}}`
"""

from __future__ import annotations

from typing import Any, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.source.ranges import Batch

VERSION: Final = 1
Offset = dict[str, Any]


def initial_offset(namespace: str, owner: str) -> Offset:
    return {"v": VERSION, "n": namespace, "o": owner, "e": 0, "b": {}}


def offset_after(start: Offset, batch: Batch, owner: str) -> Offset:
    """The offset at the end of a batch that follows `start`."""
    content = {
        entity: {str(fragment): [list(one) for one in ranges] for fragment, ranges in sorted(fragments.items())}
        for entity, fragments in sorted(batch.items())
    }
    return {"v": VERSION, "n": start["n"], "o": owner, "e": start["e"] + 1, "b": content}


def batch_ending_at(offset: Offset) -> Batch:
    return {
        entity: {int(fragment): [(first, last) for first, last in ranges] for fragment, ranges in fragments.items()}
        for entity, fragments in offset["b"].items()
    }


def check_offset(offset: Offset, namespace: str, owner: str) -> None:
    """Raises InvalidArgument for what another version, or a query on another namespace or with another owner, has
    written. Offsets of the first version may lack the owner."""
    if not isinstance(offset, dict) or not {"v", "n", "e", "b"} <= offset.keys():
        raise InvalidArgument(
            "the checkpoint has no offsets of servicebus: it is that of a query with another source. Give this one a "
            "checkpoint of its own"
        )
    if offset["v"] != VERSION:
        raise InvalidArgument(
            f"the checkpoint has offsets of version {offset['v']!r}, and this is version {VERSION}: use the "
            "tandembus that wrote it, or a new checkpoint"
        )
    if offset["n"] != namespace:
        raise InvalidArgument(
            f"the checkpoint belongs to the namespace {offset['n']!r}, and this is {namespace!r}: use a checkpoint of "
            f"its own for each namespace; if it is the same one at a new address, give the option "
            f"namespaceId={offset['n']}"
        )
    if offset.get("o", owner) != owner:
        raise InvalidArgument(
            f"the checkpoint belongs to the owner {offset['o']!r}, and this is {owner!r}, which could not settle the "
            f"last batch of the other: give the option owner={offset['o']}, or a new checkpoint"
        )
