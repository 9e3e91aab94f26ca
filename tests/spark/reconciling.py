"""`tandembus spark reconcile` for tests, and what it answers."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from tandembus.cli import main


def reconciled(exit_code: int, *arguments: object) -> dict[str, Any]:
    """What the command answers; it takes the Spark session that is there."""
    told = CliRunner().invoke(main, ["spark", "reconcile", *[str(each) for each in arguments], "--json"])
    assert told.exit_code == exit_code, told.output
    answer: dict[str, Any] = json.loads(told.stdout)
    assert all(one["is_balanced"] for one in answer["entities"])
    return answer


def figures(answer: dict[str, Any], name: str, namespace: str = "contoso") -> dict[str, int]:
    """Its counts, but for those that are 0."""
    (row,) = [one for one in answer["entities"] if (one["entity"], one["namespace"]) == (name, namespace)]
    return {key: value for key, value in row.items() if type(value) is int and value}


def found(answer: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(one["entity"], one["message_id"]) for one in answer["exceptions"] if one["kind"] == kind]
