"""What stands in a namespace before somebody looks at it: made over HTTP, and by the SDK where it takes a receiver."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver

from tandembus.security.sas import make_token, parse_connection_string
from tests.integration.python_sdk import receive
from tests.integration.serving import RunningNamespace

ANSWERS_WITHIN_S = 30.0
TAKEN_WITHIN_S = 20.0


class Refused(Exception):
    """What the namespace said instead of doing it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Stage:
    """One namespace, with all rights."""

    def __init__(self, namespace: RunningNamespace) -> None:
        self.namespace = namespace

    def call(self, method: str, route: str, document: object = None) -> Any:
        """What a route answers, None where it has nothing to say."""
        there = parse_connection_string(self.namespace.connection_string)
        assert there.key_name is not None
        assert there.key is not None
        url = self.namespace.http_url
        headers = {"Authorization": make_token(url, there.key_name, there.key, time.time() + 300.0)}
        body = None if document is None else json.dumps(document).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url + route, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None
        return json.loads(answer) if answer else None

    def make(self, path: str, kind: str = "queue", rule: object = None, **settings: object) -> None:
        document = {"kind": kind, "settings": settings, "default_rule": rule}
        self.call("PUT", f"/$api/entity?path={quote(path)}", document)

    def entity(self, path: str) -> Any:
        return self.call("GET", f"/$api/entity?path={quote(path)}")

    def send(self, path: str, body: str | bytes = "", **parts: object) -> str:
        """Its sequence number."""
        encoded = {"text": body} if isinstance(body, str) else {"base64": base64.b64encode(body).decode()}
        answer = self.call("POST", f"/$api/messages?path={quote(path)}", {"body": encoded, **parts})
        return str(answer["sequence_number"])

    def messages(self, path: str, sub_queue: str = "main") -> Any:
        return self.call("GET", f"/$api/messages?path={quote(path)}&sub_queue={sub_queue}&state=all&top=200")[
            "messages"
        ]

    def take(
        self, queue: str, count: int, settle: Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], None]
    ) -> None:
        """Receive as an application does, and settle each message in its way."""
        with (
            ServiceBusClient.from_connection_string(self.namespace.connection_string) as client,
            client.get_queue_receiver(queue, max_wait_time=TAKEN_WITHIN_S) as receiver,
        ):
            for message in receive(receiver, count):
                settle(receiver, message)

    def bury(self, queue: str, **reasons: int) -> None:
        """So many dead letters for each reason, with the bodies 0, 1, 2 ..."""
        names = [reason for reason, count in reasons.items() for _ in range(count)]
        for index, _ in enumerate(names):
            self.send(queue, str(index), message_id=f"dead-{index}")
        left = iter(names)
        self.take(queue, len(names), lambda receiver, one: receiver.dead_letter_message(one, reason=next(left)))

    def policy(self, name: str, rights: list[str], entity: str = "") -> str:
        """A connection string with a key that is good for these rights alone."""
        above = f"/{quote(entity)}" if entity else ""
        key: str = self.call("PUT", f"{above}/$policies/{name}", {"rights": rights})["primary_key"]
        parts = [
            f"Endpoint=sb://localhost:{self.namespace.port}/",
            f"SharedAccessKeyName={name}",
            f"SharedAccessKey={key}",
        ]
        parts += ["UseDevelopmentEmulator=true", *([f"EntityPath={entity}"] if entity else [])]
        return ";".join(parts)
