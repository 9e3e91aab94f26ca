"""The unmodified administration client of the JavaScript SDK, over TLS, against a running namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.covers import covers
from tests.integration.serving import RunningNamespace
from tests.integration.unreachable import unreachable_queue

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists(),
    reason="needs node and @azure/service-bus: `make install` brings them where npm is",
)


@pytest.fixture(scope="module")
def seen(running_namespace: RunningNamespace) -> dict[str, Any]:
    """What the script saw: one run for all tests, since starting Node costs more than all its requests."""
    assert NODE is not None
    name = f"javascript-{uuid.uuid4().hex[:12]}"
    environment = {
        **os.environ,
        "NODE_EXTRA_CA_CERTS": str(running_namespace.ca_path),
        "CONNECTION_STRING": running_namespace.admin_connection_string,
        "QUEUE_NAME": name,
        "UNREACHABLE_QUEUE_NAME": f"{name}-out",
    }
    with unreachable_queue(running_namespace.connection_string, f"{name}-out"):
        run = subprocess.run(
            [NODE, "administration.mjs"], cwd=JS, env=environment, capture_output=True, text=True, timeout=120
        )
    assert run.returncode == 0, run.stderr
    document: dict[str, Any] = json.loads(run.stdout)
    return document


@covers("B1")
def test_a_queue_is_created_read_and_updated(seen: dict[str, Any]) -> None:
    assert (seen["existsBefore"], seen["existsAfter"], seen["gone"]) == (False, True, False)
    created = seen["created"]
    assert (created["maxDeliveryCount"], created["lockDuration"]) == (7, "PT30S")
    assert created["userMetadata"] == "<made in> & by JavaScript"
    assert created["defaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S"
    assert created["authorizationRules"][0]["accessRights"] == ["Send", "Listen"]
    assert seen["read"] == created
    assert seen["updated"] == {**created, "maxDeliveryCount": 8}


@covers("B1")
def test_runtime_properties_have_all_counts_and_times(seen: dict[str, Any]) -> None:
    runtime = seen["runtime"]
    counts = [value for name, value in runtime.items() if name.endswith("Count")]
    assert counts == [0] * 6
    assert all(runtime[name] > "2020" for name in ("createdAt", "modifiedAt", "accessedAt"))


@covers("B1")
def test_lists_are_complete_and_paged(seen: dict[str, Any]) -> None:
    assert set(seen["many"]) < set(seen["listed"])
    assert seen["pages"][0] == 5
    assert sum(seen["pages"]) == len(seen["listed"])


@covers("B1", "P19")
def test_a_list_with_an_entity_that_is_out_of_reach_is_read_and_its_counts_are_unknown(seen: dict[str, Any]) -> None:
    assert (seen["unreachable"]["availabilityStatus"], seen["unreachable"]["maxDeliveryCount"]) == ("Limited", 10)
    runtime = seen["unreachableRuntime"]
    figures = [value for name, value in runtime.items() if name.endswith("Count") or name == "sizeInBytes"]
    assert figures == [-1] * 7
    assert seen["unreachableAlone"]["status"] == 503


@covers("B1")
def test_refusals_are_the_errors_that_the_sdk_has_for_them(seen: dict[str, Any]) -> None:
    assert (seen["conflict"]["status"], seen["conflict"]["code"]) == (409, "MessageEntityAlreadyExistsError")
    assert (seen["absent"]["status"], seen["absent"]["code"]) == (404, "MessageEntityNotFoundError")
    assert (seen["invalid"]["status"], seen["invalid"]["code"]) == (400, "ServiceError")
    assert "LockDuration" in seen["invalid"]["message"]


@covers("B1")
def test_the_namespace_tells_its_properties(seen: dict[str, Any]) -> None:
    assert seen["namespace"]["messagingSku"] == "Standard"
    assert seen["namespace"]["name"]
