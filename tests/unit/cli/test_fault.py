"""`tandembus fault`: what is wrong is said before anybody is asked, and ids are made the same way every time."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.failures import failure_from
from tandembus.cli.fault import default_id
from tandembus.errors import QuotaExceeded, ServerBusy, StoreUnavailable
from tests.covers import covers

NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@covers("B3")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["orders", "unavailable"], "write namespace, entity/NAME"),
        (["queue/orders", "unavailable"], "write namespace, entity/NAME"),
        (["entity/orders", "down"], "'unavailable', 'slow', 'throttled', 'disk-full'"),
        (["entity/orders"], "Missing argument"),
        (["entity/orders", "slow"], "needs --latency"),
        (["entity/orders", "throttled", "--latency", "5s"], "has no --latency"),
        (["entity/orders", "slow", "--latency", "never"], "write how long"),
        (["entity/orders", "slow", "--latency", "0"], "write how long"),
        (["entity/orders", "slow", "--latency", "long"], "is no duration"),
        (["entity/orders", "unavailable", "--for", "never"], "write how long"),
        (["entity/orders", "unavailable", "--probability", "0"], "is no probability"),
        (["entity/orders", "unavailable", "--probability", "1.5"], "is no probability"),
        (["entity/orders", "unavailable", "--probability", "150%"], "is no probability"),
        (["entity/orders", "unavailable", "--probability", "nan"], "is no probability"),
        (["entity/orders", "unavailable", "--id", "a b"], "a fault's id has"),
        (["entity/orders", "unavailable", "--id", ""], "a fault's id has"),
    ],
)
def test_what_is_wrong_is_said_before_anybody_is_asked(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["fault", "add", *arguments, "--connection-string", NOBODY])
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


@covers("B3")
def test_an_id_that_cannot_be_one_is_not_cleared() -> None:
    result = CliRunner().invoke(main, ["fault", "clear", "a/b", "--connection-string", NOBODY])
    assert result.exit_code == 2
    assert "a fault's id has" in result.output


@covers("B3")
@pytest.mark.parametrize(
    ("target", "kind", "expected"),
    [
        ("namespace", "unavailable", "namespace-unavailable"),
        ("fragment/shops/orders/3", "disk-full", "fragment-shops-orders-3-disk-full"),
        ("entity/a~b", "slow", "entity-a-b-slow"),
    ],
)
def test_a_fault_is_called_by_what_it_does(target: str, kind: str, expected: str) -> None:
    assert default_id(target, kind) == expected


@covers("B3")
def test_long_names_make_ids_that_are_short_enough_and_different() -> None:
    made = {default_id("entity/" + "x" * 200 + end, "slow") for end in "abc"}
    assert len(made) == 3
    for each in made:
        assert re.fullmatch(r"[A-Za-z0-9._-]{64}", each)


@covers("B3")
@pytest.mark.parametrize("kind", [StoreUnavailable, ServerBusy])
def test_who_meets_a_fault_is_told_how_to_heal_it(kind: type[Exception]) -> None:
    failure = failure_from(kind("'orders' is out (injected fault 'f1'). SubCode=50000"), "send")
    assert "tandembus fault clear" in failure.advice
    assert "on purpose" not in failure_from(kind("It is out."), "send").advice


@covers("B3")
def test_too_many_faults_are_no_full_queue() -> None:
    assert "fault clear" in failure_from(QuotaExceeded("There are 100 faults already."), "fault").advice
