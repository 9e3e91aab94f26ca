"""Tokens and the meter on the command line, against a running namespace."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one
from tests.integration.serving import RunningNamespace


@pytest.fixture
def queue(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("queue", "create", name)
    yield name
    run("queue", "delete", name, "--yes")


@covers("M15")
def test_a_token_opens_what_it_is_for(run: Run, running_namespace: RunningNamespace, queue: str) -> None:
    def get(path: str, token: str) -> int:
        request = urllib.request.Request(f"{running_namespace.http_url}/{path}", headers={"Authorization": token})
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    whole = run("token").stdout.strip()
    assert get(queue, whole) == 200
    narrow = one(run("token", queue, "--lifetime", "5m", "--json"))
    assert get(queue, narrow["token"]) == 200
    assert get("$namespaceinfo", narrow["token"]) == 401
    assert narrow["uri"].endswith(f"/{queue}")
    assert get(queue, one(run("token", "other", "--json"))["token"]) == 401


def test_the_meter_tells_what_was_done(run: Run, queue: str) -> None:
    run("send", queue, "x" * 100_000, "--count", "2")
    found = {each["operation"]: each for each in lines(run("meter", "--entity", queue, "--json"))}
    assert (found["send"]["messages"], found["send"]["operations"], found["send"]["reason"]) == (2, 4, "normal")
    assert "send" in run("meter", "--total").stdout
    row = next(line for line in run("meter").stdout.splitlines() if queue in line and " send " in line)
    assert row.split()[:6] == [queue, "send", "normal", "2", "2", "4"]
    assert "nothing" in run("meter", "--entity", "nowhere").stdout
    sends = next(
        each
        for each in lines(run("meter", "--entity", queue, "--prices", "us", "--json"))
        if each["operation"] == "send"
    )
    assert sends["cost"] == pytest.approx(sends["operations"] * 0.80 / 1_000_000)
    assert "USD in all, at list prices of" in run("meter", "--total", "--prices", "us").stdout
    assert "price lists" in run("meter", "--prices", "mars", exit_code=2).stderr
