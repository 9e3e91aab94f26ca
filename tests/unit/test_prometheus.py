"""The text format that scrapers read."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tandembus.prometheus import COUNTER, GAUGE, HISTOGRAM, Exposition, Family, Histogram, document
from tests.covers import covers

DEPTH = Family("depth", GAUGE, "Messages,\nby \\ entity.", ("entity",))
SENT = Family("sent_total", COUNTER, "Messages sent.", ("entity",))
TOOK = Family("took_seconds", HISTOGRAM, "Time.", ("store",))
LABEL = re.compile(r'^depth\{entity="((?:[^"\\\n]|\\\\|\\"|\\n)*)"\} 1$')


@covers("B5")
def test_a_family_stands_in_one_piece_however_many_parts_tell_of_it() -> None:
    parts = []
    for process, count in (("a", 1), ("b", 2)):
        out = Exposition({"process": process})
        out.add(SENT, count, "orders")
        out.add(DEPTH, 10 * count, "orders")
        parts.append(out.blocks())
    assert document((DEPTH, SENT, TOOK), parts) == (
        "# HELP depth Messages,\\nby \\\\ entity.\n"
        "# TYPE depth gauge\n"
        'depth{entity="orders",process="a"} 10\n'
        'depth{entity="orders",process="b"} 20\n'
        "# HELP sent_total Messages sent.\n"
        "# TYPE sent_total counter\n"
        'sent_total{entity="orders",process="a"} 1\n'
        'sent_total{entity="orders",process="b"} 2\n'
    )


@covers("B5")
def test_buckets_of_a_histogram_count_all_below_them() -> None:
    took = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        took.observe(seconds)
    out = Exposition()
    out.add_histogram(TOOK, took, "0")
    assert out.blocks()["took_seconds"].splitlines() == [
        'took_seconds_bucket{store="0",le="0.1"} 2',
        'took_seconds_bucket{store="0",le="1"} 3',
        'took_seconds_bucket{store="0",le="+Inf"} 4',
        'took_seconds_sum{store="0"} 7.65',
        'took_seconds_count{store="0"} 4',
    ]


@given(st.text())
@covers("B5")
def test_no_name_breaks_out_of_its_label(name: str) -> None:
    out = Exposition()
    out.add(DEPTH, 1, name)
    (line, rest) = out.blocks()["depth"].split("\n", 1) if "\n" not in name else (out.blocks()["depth"][:-1], "")
    found = LABEL.match(line)
    assert found is not None
    assert rest == ""
    unescaped = re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], found[1])
    assert unescaped == name
