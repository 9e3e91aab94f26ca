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

CORRELATION_RULE = {
    "Name": "app-prop-filter-1",
    "Properties": {
        "FilterType": "Correlation",
        "CorrelationFilter": {
            "ContentType": "application/text",
            "CorrelationId": "id1",
            "Label": "subject1",
            "MessageId": "msgid1",
            "ReplyTo": "someQueue",
            "ReplyToSessionId": "sessionId",
            "SessionId": "session1",
            "To": "xyz",
            "Properties": {"text": "value1", "number": 5, "half": 0.5, "yes": True},
        },
    },
}
SQL_RULE = {
    "Name": "user-prop-filter-1",
    "Properties": {
        "FilterType": "Sql",
        "SqlFilter": {"SqlExpression": "sys.MessageId = '123456' AND userProp1 = 'value1'"},
        "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
    },
}
TOPIC = {
    "Name": "topic.1",
    "Properties": {
        "DefaultMessageTimeToLive": "PT1H",
        "DuplicateDetectionHistoryTimeWindow": "PT20S",
        "RequiresDuplicateDetection": True,
        "EnablePartitioning": False,
    },
    "Subscriptions": [
        {
            "Name": "subscription.1",
            "Properties": {
                "DeadLetteringOnMessageExpiration": True,
                "DefaultMessageTimeToLive": "PT30M",
                "LockDuration": "PT45S",
                "MaxDeliveryCount": 4,
                "ForwardDeadLetteredMessagesTo": "",
                "ForwardTo": "",
                "RequiresSession": True,
            },
            "Rules": [CORRELATION_RULE, SQL_RULE],
        },
        {"Name": "subscription.2"},
    ],
}


def config(*queues: dict[str, Any], topics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    namespace = {"Name": "sbemulatorns", "Queues": list(queues), "Topics": topics or []}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}


def topic(name: str, *subscriptions: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties, "Subscriptions": list(subscriptions)}


def subscription(name: str, *rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties, "Rules": list(rules)}


def rule(name: str, expression: str, action: str | None = None) -> dict[str, Any]:
    properties: dict[str, Any] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    if action is not None:
        properties["Action"] = {"SqlExpression": action}
    return {"Name": name, "Properties": properties}


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
