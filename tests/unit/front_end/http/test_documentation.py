"""What the documents say of routes, operations and limits is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tandembus.front_end.http import messages, xml_reader
from tandembus.front_end.http.administration import METER_PATH
from tandembus.front_end.http.connection import HttpTimings
from tandembus.front_end.http.faults import FAULTS
from tandembus.front_end.http.message_paths import Target
from tandembus.front_end.http.policies import POLICIES
from tandembus.front_end.http.scraping import METRICS_PATH
from tandembus.front_end.http.server import API, HEALTH_PATHS
from tandembus.front_end.http.topology import TOPOLOGY_PATH
from tandembus.front_end.http.upkeep import Upkeep
from tandembus.front_end.websocket import handshake
from tandembus.metering.slot import OPERATIONS, REASONS
from tests.unit.front_end.http.harness import RunningFrontEnd

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize(
    "route",
    [
        *[f"GET /{path}`" for path in sorted(HEALTH_PATHS)],
        "GET /`",
        "GET /$dashboard/FILE",
        "GET /$namespaceinfo",
        "GET /$Resources/queues",
        "GET /$Resources/topics",
        *[f"{method} /NAME`" for method in ("GET", "PUT", "DELETE")],
        "GET /TOPIC/subscriptions",
        *[f"{method} /TOPIC/subscriptions/NAME`" for method in ("GET", "PUT", "DELETE")],
        "GET /TOPIC/subscriptions/NAME/rules",
        *[f"{method} /TOPIC/subscriptions/NAME/rules/RULE" for method in ("GET", "PUT", "DELETE")],
        "POST /PATH/messages`",
        "POST /PATH/messages/head?timeout=S",
        "DELETE /PATH/messages/head?timeout=S",
        *[f"{method} /PATH/messages/ID/LOCKTOKEN" for method in messages.METHODS[Target.LOCKED]],
        f"POST /PATH/{Upkeep.PURGE.value}",
        f"POST /PATH/$DeadLetterQueue/{Upkeep.RESUBMIT.value}",
        "DELETE /PATH/messages/NUMBER",
        f"GET /{POLICIES}",
        *[f"{method} /{POLICIES}/NAME`" for method in ("GET", "PUT", "DELETE")],
        f"POST /{POLICIES}/NAME/regenerate?key=primary",
        f"GET /{METER_PATH}",
        f"GET /{METRICS_PATH}",
        f"GET /{TOPOLOGY_PATH}",
        *[f"{method} /{FAULTS}`" for method in ("GET", "DELETE")],
        *[f"{method} /{FAULTS}/ID`" for method in ("GET", "PUT", "DELETE")],
        f"GET /{handshake.PATH}",
    ],
)
def test_every_route_is_documented(route: str) -> None:
    assert route in (DOCS / "http.md").read_text()


async def test_the_routes_of_json_are_documented_and_no_others(front_end: RunningFrontEnd) -> None:
    told = set(re.findall(r"^\| `([A-Z]+ /\$api/[a-z/]+)", (DOCS / "http.md").read_text(), re.MULTILINE))
    assert told == {f"{route.method} /$api/{route.name}" for route in front_end.runner.app[API].all()}


def test_the_limits_that_are_no_settings_are_documented() -> None:
    text = (DOCS / "http.md").read_text()
    assert f"{xml_reader.MAX_ELEMENTS:,} elements" in text
    assert f"{xml_reader.MAX_ATTRIBUTES} attributes" in text
    assert f"{xml_reader.MAX_EQUALS_SIGNS:,} in all" in text
    timings = HttpTimings()
    assert f"within {timings.keep_alive_s:g} s of the previous answer" in text
    assert f"within {timings.body_s:g} s of its head" in text
    assert f"be read within {timings.unread_s:g} s" in text


def test_every_operation_and_reason_of_the_meter_is_documented() -> None:
    text = (DOCS / "meter.md").read_text()
    assert [name for name in (*OPERATIONS, *REASONS) if f"`{name}`" not in text] == []
