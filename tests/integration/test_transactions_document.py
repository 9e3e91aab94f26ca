"""The example of docs/transactions.md, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.command_line import Run, lines, received
from tests.integration.serving import KEY

DOCUMENT = Path(__file__).parents[2] / "docs" / "transactions.md"


@covers("M11")
def test_an_order_becomes_an_invoice_as_the_document_says(bus: Bus, run: Run) -> None:
    pytest.importorskip("proton", reason="python-qpid-proton is not installed: it needs a C compiler")
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    for queue in ("orders", "invoices"):
        run("queue", "create", queue)
    run("send", "orders", "--lines", stdin="pears\napples\n")
    assert names["take_one_order"](f"amqp://localhost:{bus.running.port}", KEY) == "committed"
    arrived = lines(run("receive", "invoices", "--wait", "10s", "--json"))
    assert [each["body"] for each in arrived] == ["invoice for pears"]
    assert [each["body"] for each in received(run, "orders")] == ["apples"]
    for queue in ("orders", "invoices"):
        run("queue", "delete", queue, "--yes")
