"""What docs/metrics.md lists is what there is, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.node.metrics import entity_metrics, families, store_metrics
from tandembus.pairing import syphon_observer
from tandembus.prometheus import COUNTER, HISTOGRAM, Family
from tests.covers import covers

DOCS = Path(__file__).parents[4] / "docs"
DOCUMENT = (DOCS / "metrics.md").read_text()
ALL = [*families.FAMILIES, *syphon_observer.FAMILIES]
SERIES = {
    f"{one.name}{suffix}"
    for one in ALL
    for suffix in (("_bucket", "_sum", "_count") if one.kind == HISTOGRAM else ("",))
}
NAME = re.compile(r"tandembus_\w+")


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.about} |"


@pytest.mark.parametrize("family", ALL, ids=[one.name for one in ALL])
@covers("B5")
def test_every_metric_stands_in_the_documentation(family: Family) -> None:
    assert row(family) in DOCUMENT.splitlines(), f"docs/metrics.md needs this line:\n{row(family)}"


@covers("B5")
def test_the_documentation_lists_no_metric_that_is_not_there() -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| `tandembus_")]
    assert sorted(rows) == sorted(row(one) for one in ALL)
    assert set(NAME.findall(DOCUMENT)) <= SERIES | {one.name for one in ALL}


@covers("B5")
def test_every_state_stands_in_the_documentation() -> None:
    states = (*entity_metrics.STATES, *store_metrics.STATES)
    assert [state for state in states if f"`{state}`" not in DOCUMENT] == []


@pytest.mark.parametrize("family", ALL, ids=[one.name for one in ALL])
def test_names_are_as_prometheus_asks_for(family: Family) -> None:
    assert re.fullmatch(r"tandembus(_[a-z]+)+", family.name)
    assert (family.kind == COUNTER) == family.name.endswith("_total")
    assert not {"le", "quantile", "process", "job", "instance"} & set(family.labels)
    assert family.about.endswith(".")


def expressions(part: object) -> Iterator[str]:
    """All that the dashboard asks Prometheus."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(part, list):
        for value in part:
            yield from expressions(value)


@covers("B5")
def test_the_dashboard_asks_for_documented_metrics_only() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    asked = {name for text in expressions(dashboard) for name in NAME.findall(text)}
    assert len(asked) > 30
    assert asked <= SERIES


@covers("B5")
def test_the_dashboard_has_a_part_for_each_kind_of_metric() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "Entities", "Stores", "Processes", "Pairing"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
