"""What Spark writes into its log: not how far a stream came, but which messages its last batch holds.

`{"v": 1, "n": namespace, "o": owner, "e": batch counter, "b": {entity: {fragment: [[first, last], ...]}}}`, and in the
same form as `"u"` what earlier batches had and could not be settled when this one was planned, if there is any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.source.ranges import Batch, union, without

VERSION: Final = 1
NONE_YET: Final = -1
OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
"""In a checkpoint: Spark's logs of the batches that it has planned, and of those that are done."""
Offset = dict[str, Any]


def initial_offset(namespace: str, owner: str) -> Offset:
    return {"v": VERSION, "n": namespace, "o": owner, "e": 0, "b": {}}


def offset_after(start: Offset, batch: Batch, owner: str, unsettled: Batch | None = None) -> Offset:
    """The offset at the end of a batch that follows `start`."""
    offset = {"v": VERSION, "n": start["n"], "o": owner, "e": start["e"] + 1, "b": _written(batch)}
    return {**offset, "u": _written(unsettled)} if unsettled else offset


def batch_ending_at(offset: Offset) -> Batch:
    return _read(offset["b"])


def done_at(offset: Offset, *, is_done: bool = True) -> Batch:
    """Returns the messages to settle: the batch that ends here, if it is done, and the rest of earlier ones."""
    batch = batch_ending_at(offset)
    done = batch if is_done else {}
    for entity, ranges in _read(offset.get("u", {})).items():
        spelled = next((each for each in batch if each.lower() == entity.lower()), entity)
        # A message that is in the batch again was released meanwhile.
        left = without(ranges, batch.get(spelled, {}))
        if left:
            done = {**done, spelled: union((done.get(spelled, {}), left))}
    return done


def _written(batch: Batch) -> dict[str, dict[str, list[list[int]]]]:
    return {
        entity: {str(fragment): [list(one) for one in ranges] for fragment, ranges in sorted(fragments.items())}
        for entity, fragments in sorted(batch.items())
    }


def _read(content: dict[str, Any]) -> Batch:
    return {
        entity: {int(fragment): [(first, last) for first, last in ranges] for fragment, ranges in fragments.items()}
        for entity, fragments in content.items()
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


def newest(names: Iterable[str]) -> int:
    """The last batch in one of Spark's logs: a file each, and now and then one for all before."""
    numbers = [name.removesuffix(".compact") for name in names]
    return max([int(number) for number in numbers if number.isdecimal()], default=NONE_YET)


def offsets_in(text: str, owner: str) -> list[Offset]:
    """Returns the offsets of an owner's queries in a file of Spark's log, which has a line for each source."""
    found: list[Offset] = []
    for line in text.splitlines():
        try:
            offset = json.loads(line)
        except ValueError:
            continue  # the version of the file
        if isinstance(offset, dict) and {"v", "n", "e", "b"} <= offset.keys() and offset.get("o", owner) == owner:
            found.append(offset)
    return found
