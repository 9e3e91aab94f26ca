"""The catalog and the messaging stores: whether they can be opened, and fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding
from tandembus.cli.diagnosis.served import Served, children_of, kind_of
from tandembus.cli.output import counted
from tandembus.node.upkeep.check import Part, check_folder, check_quickly
from tandembus.node.upkeep.folders import environments_of

AREA: Final = Area("stores")
_SHOWN: Final = 3


def examine(
    data: Path, served: Served, is_deep: bool, begun: Callable[[int], Callable[[int], None]]
) -> Iterator[Finding]:
    yield _running(served)
    if not environments_of(data):
        yield AREA.ok("data", f"nothing in {data} yet: the first start makes it")
        return
    for part in check_folder(data, begun) if is_deep else check_quickly(data):
        yield condition(part, is_deep)


def _running(served: Served) -> Finding:
    if served.pid is None:
        return AREA.ok("namespace", "not running")
    kinds = [kind_of(pid) for pid in children_of(served.pid)]
    ours = sorted(kind.removeprefix("tandembus ") for kind in kinds if kind.startswith("tandembus "))
    more = f", with {', '.join(ours)}" if ours else ""
    return AREA.ok("namespace", f"running, process {served.pid}{more}")


def condition(part: Part, is_deep: bool) -> Finding:
    if part.damage_count:
        shown = "; ".join(part.findings[:_SHOWN])
        more = f"; and {part.damage_count - _SHOWN:,} more" if part.damage_count > _SHOWN else ""
        advice = "`tandembus check` tells all of it; `tandembus restore` brings a backup back."
        return AREA.problem(part.name, shown + more, advice)
    if part.quarantined_count:
        text = f"{counted(part.quarantined_count, 'message')} put aside as damaged"
        return AREA.warning(part.name, text, "The disk has rotted: look at its health, and keep backups.")
    counts = f"{part.record_count:,} records" if part.epoch is None or is_deep else f"epoch {part.epoch:,}"
    return AREA.ok(part.name, counts + (", every one verified" if is_deep else ""))
