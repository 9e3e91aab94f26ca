"""What was told, by metric and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tandembus.node.metrics.entity_metrics import EntityMetrics
from tandembus.prometheus import Exposition, Family
from tests.unit.namespace.namespace_lives import Life

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scraped:
    def __init__(self, text: str) -> None:
        self.series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                found = LINE.match(line)
                assert found is not None, line
                key = (found[1], frozenset(LABEL.findall(found[2] or "")))
                assert key not in self.series, f"told twice: {line}"
                self.series[key] = float(found[3])

    def of(self, family: Family, **labels: str) -> float:
        """The sum of all series that have these labels."""
        return sum(self.all(family, **labels).values())

    def all(self, family: Family, **labels: str) -> Mapping[frozenset[tuple[str, str]], float]:
        wanted = set(labels.items())
        return {told: value for (name, told), value in self.series.items() if name == family.name and wanted <= told}

    def entities(self, family: Family) -> set[str]:
        return {dict(told)["entity"] for told in self.all(family)}


def entity_metrics(life: Life) -> EntityMetrics:
    return EntityMetrics(life.catalog, lambda: dict(enumerate(life.brokers)), life.clock, life.machine.limits)


async def scrape(metrics: EntityMetrics) -> Scraped:
    out = Exposition()
    await metrics.tell(out)
    return Scraped("".join(out.blocks().values()))
