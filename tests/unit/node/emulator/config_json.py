"""A Config.json as people have it, and changes to it at a place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

QUEUE = {
    "Name": "queue.1",
    "Properties": {
        "DeadLetteringOnMessageExpiration": True,
        "DefaultMessageTimeToLive": "PT30M",
        "DuplicateDetectionHistoryTimeWindow": "PT5S",
        "ForwardDeadLetteredMessagesTo": "",
        "ForwardTo": "",
        "LockDuration": "PT30S",
        "MaxDeliveryCount": 5,
        "RequiresDuplicateDetection": False,
        "RequiresSession": False,
        "EnablePartitioning": False,
    },
}


def config(*queues: dict[str, Any], topics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    namespace = {"Name": "sbemulatorns", "Queues": list(queues), "Topics": topics or []}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}


def queue(name: str, **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def changed(document: Any, path: str, value: Any) -> Any:
    """A copy in which something stands at `path`, such as `UserConfig.Namespaces[0].Name`; `...` takes it away."""
    result = copy.deepcopy(document)
    at = result
    steps: list[str | int] = []
    for part in path.replace("[", ".[").split("."):
        steps.append(int(part[1:-1]) if part.startswith("[") else part)
    for step in steps[:-1]:
        at = at[step]
    if value is ...:
        del at[steps[-1]]
    else:
        at[steps[-1]] = value
    return result


def write(folder: Path, document: Any) -> Path:
    path = folder / "Config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path
