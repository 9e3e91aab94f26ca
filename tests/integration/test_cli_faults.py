"""`tandembus fault`, and partitioned entities by the command line, against a running namespace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one
from tests.integration.shapes import PARTITIONED, on_shapes

pytestmark = on_shapes(PARTITIONED)  # two stores


@pytest.fixture(autouse=True)
def _healed(run: Run) -> Iterator[None]:
    yield
    run("fault", "clear")


@covers("B3")
def test_a_fault_is_added_listed_felt_and_cleared(run: Run) -> None:
    run("queue", "create", "drilled")
    added = run("fault", "add", "entity/drilled", "unavailable", "--for", "2m").stdout
    assert "added entity-drilled-unavailable: entity/drilled is unavailable for 2m" in added
    assert "`tandembus fault clear entity-drilled-unavailable` heals it" in added
    table = run("fault", "list").stdout.splitlines()
    assert table[0].split() == ["fault", "target", "kind", "latency", "probability", "ends", "in", "state"]
    assert table[1].split()[:5] == ["entity-drilled-unavailable", "entity/drilled", "unavailable", "-", "always"]
    failed = run("send", "drilled", "x", exit_code=7)
    assert "tandembus fault clear" in failed.stderr
    assert "Limited" in run("queue", "list").stdout
    assert "cleared 1 fault" in run("fault", "clear", "entity-drilled-unavailable").stdout
    run("send", "drilled", "x")
    assert "no faults" in run("fault", "list").stdout
    assert "there were no faults" in run("fault", "clear").stdout


@covers("B3")
def test_programs_read_faults_as_json(run: Run) -> None:
    options = ("--latency", "250ms", "--probability", "25%", "--id", "slow.1", "--json")
    added = one(run("fault", "add", "store/1", "slow", *options))
    assert (added["id"], added["target"], added["kind"]) == ("slow.1", "store/1", "slow")
    assert (added["latency_ms"], added["probability"], added["for_s"], added["state"]) == (250, 0.25, None, "active")
    run("fault", "add", "entity/not-there", "throttled", "--json")
    found = lines(run("fault", "list", "--json"))
    assert [(each["id"], each["state"]) for each in found] == [
        ("entity-not-there-throttled", "pending"),
        ("slow.1", "active"),
    ]
    assert one(run("fault", "clear", "--json")) == {"cleared": 2}


@covers("B3")
def test_what_the_namespace_refuses_is_told_with_its_reason(run: Run) -> None:
    assert "the stores 0 to 1" in run("fault", "add", "store/2", "unavailable", exit_code=1).stderr
    run("queue", "create", "undivided")
    refused = run("fault", "add", "fragment/undivided/3", "unavailable", exit_code=1)
    assert "is not partitioned" in refused.stderr
    missing = run("fault", "clear", "nobody", exit_code=3)
    assert "no fault 'nobody'" in missing.stderr
    assert "tandembus fault list" in missing.stderr


@covers("B3")
def test_a_namespace_that_is_out_is_healed_by_the_same_command(run: Run) -> None:
    run("fault", "add", "namespace", "unavailable", "--id", "drill")
    assert "injected fault 'drill'" in run("queue", "list", exit_code=7).stderr
    run("fault", "clear", "drill")
    run("queue", "list")


@covers("P8", "P9", "P19")
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_partitioned_entity_is_created_and_shown_with_its_fragments_and_size(run: Run, kind: str) -> None:
    name = f"spread-{kind}"
    made = one(run(kind, "create", name, "--enable-partitioning", "--max-size-gb", "5", "--json"))
    assert (made["partitioning"], made["fragments"], made["max_size_mb"]) == (True, 16, 81_920)
    assert made["availability_status"] == "Available"
    shown = run(kind, "show", name).stdout
    assert "80 GB (16 fragments of 5 GB)" in shown
    fields = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in shown.splitlines())
    assert fields["fragments"] == "16"
    assert fields["availability"] == "Available"
    run("fault", "add", f"fragment/{name}/7", "unavailable")
    assert one(run(kind, "show", name, "--json"))["availability_status"] == "Limited"


@covers("P19")
def test_counts_that_are_not_known_are_not_shown_as_0(run: Run) -> None:
    for name in ("partly", "wholly"):
        run("queue", "create", name, "--enable-partitioning")
        run("send", name, "x", "--count", "16")
    run("fault", "add", "fragment/partly/7", "unavailable")
    run("fault", "add", "entity/wholly", "unavailable")
    table = run("queue", "list").stdout.splitlines()
    partly, wholly = (
        re.split(r"  +", next(row for row in table if row.startswith(name))) for name in ("partly", "wholly")
    )
    assert partly[2:6] == ["at least 15", "at least 0", "at least 0", "Limited"]
    assert wholly[2:7] == ["unknown", "unknown", "unknown", "Limited", "unknown"]
    shown = dict(
        re.split(r"  +", line.strip(), maxsplit=1) for line in run("queue", "show", "partly").stdout.splitlines()
    )
    assert (shown["active messages"], shown["availability"]) == ("at least 15", "Limited")
    listed = {each["name"]: each for each in lines(run("queue", "list", "--json"))}
    assert set(listed["wholly"]["counts"].values()) == {None}
    assert listed["wholly"]["availability_status"] == "Limited"
    assert listed["partly"]["counts"]["active"] == 15
    failed = run("queue", "show", "wholly", "--json", exit_code=7)
    assert json.loads(failed.stderr)["error"]["kind"] == "StoreUnavailable"


@covers("P3", "M7")
@pytest.mark.parametrize(("name", "options"), [("one", ()), ("many", ("--enable-partitioning",))])
def test_sessions_that_cannot_be_listed_are_not_shown_as_none(run: Run, name: str, options: tuple[str, ...]) -> None:
    run("queue", "create", name, "--requires-session", *options)
    run("send", name, "x", "--session-id", "s")
    run("fault", "add", f"entity/{name}", "unavailable")
    assert "is unavailable" in run("session", "list", name, exit_code=7).stderr
    run("fault", "clear")
    assert run("session", "list", name).stdout.split() == ["s"]


@covers("P8")
def test_a_plain_entity_has_one_fragment_and_the_size_it_was_given(run: Run) -> None:
    made = one(run("queue", "create", "whole", "--max-size-gb", "2", "--json"))
    assert (made["partitioning"], made["fragments"], made["max_size_mb"]) == (False, 1, 2048)
    assert "2 GB" in run("queue", "show", "whole").stdout


@covers("P8")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--max-size-gb", "0"), "0 is not in the range 1<=x<=5"),
        (("--max-size-gb", "6"), "6 is not in the range 1<=x<=5"),
        (("--max-size-gb", "1.5"), "not a valid integer range"),
        (("--max-size-gb", "2", "--max-size-mb", "2048"), "say the same"),
    ],
)
def test_sizes_that_cannot_be_are_said_before_anybody_is_asked(run: Run, options: tuple[str, ...], told: str) -> None:
    failed = run("queue", "create", "never", "--enable-partitioning", *options, exit_code=2)
    assert told in " ".join(failed.stderr.split())


@covers("P7", "P8")
def test_what_the_namespace_refuses_of_a_partitioned_entity_is_told(run: Run) -> None:
    refused = run("queue", "create", "never", "--enable-partitioning", "--max-size-mb", "1500", exit_code=1)
    assert "MaxSizeInMegabytes" in refused.stderr
    run("queue", "create", "fixed", "--enable-partitioning")
    failed = run("queue", "update", "fixed", "--no-enable-partitioning", exit_code=2)
    assert "cannot be changed" in failed.stderr
    run("queue", "update", "fixed", "--max-delivery-count", "3")
    assert json.loads(run("queue", "show", "fixed", "--json").stdout)["max_size_mb"] == 16_384
