"""The Python SDK's two clients behind one face, so that a scenario is written once and runs with both.

The asynchronous client really runs in an event loop, in a thread of its own; only the waiting is done here. Opening
and closing a link takes the SDK half a second each, spent in waits of its own: links that belong together are opened
at the same time, and closed behind the test's back.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any, cast

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

ARRIVES_WITHIN_S = 20.0
"""How long a test waits for what must come; a busy machine takes its time."""
CALL_WITHIN_S = 60.0


class Closer:
    """Closes links and clients in the background, and at the end tells whether that went well."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="closing")
        self._closings: list[Future[None]] = []

    def close(self, close: Callable[[], None]) -> None:
        self._closings.append(self._threads.submit(close))

    def finish(self) -> None:
        self._threads.shutdown(wait=True)
        for closing in self._closings:
            closing.result()


class PythonSdk(ABC):
    """One client of the SDK with the links that a test opens."""

    def __init__(self, closer: Closer) -> None:
        self._closer = closer
        self._links: list[Any] = []

    @abstractmethod
    def _make_sender(self, queue: str, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _make_receiver(self, queue: str, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _make_topic_sender(self, topic: str, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _make_subscription_receiver(self, topic: str, subscription: str, options: dict[str, Any]) -> Any: ...

    @abstractmethod
    def _close_client(self) -> None: ...

    def _open(self, links: list[Any]) -> list[Any]:
        self._links += links
        with ThreadPoolExecutor(len(links)) as threads:
            return list(threads.map(_entered, links))

    def sender(self, queue: str, **options: Any) -> ServiceBusSender:
        (sender,) = self._open([self._make_sender(queue, options)])
        return cast(ServiceBusSender, sender)

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        (receiver,) = self.receivers(1, queue, **options)
        return receiver

    def receivers(self, count: int, queue: str, **options: Any) -> list[ServiceBusReceiver]:
        options.setdefault("max_wait_time", ARRIVES_WITHIN_S)
        links = [self._make_receiver(queue, options) for _ in range(count)]
        return cast(list[ServiceBusReceiver], self._open(links))

    def topic_sender(self, topic: str, **options: Any) -> ServiceBusSender:
        (sender,) = self._open([self._make_topic_sender(topic, options)])
        return cast(ServiceBusSender, sender)

    def subscription_receiver(self, topic: str, subscription: str, **options: Any) -> ServiceBusReceiver:
        options.setdefault("max_wait_time", ARRIVES_WITHIN_S)
        (receiver,) = self._open([self._make_subscription_receiver(topic, subscription, options)])
        return cast(ServiceBusReceiver, receiver)

    def pair(self, queue: str, **options: Any) -> tuple[ServiceBusSender, ServiceBusReceiver]:
        """A sender and a receiver of the same queue."""
        options.setdefault("max_wait_time", ARRIVES_WITHIN_S)
        sender, receiver = self._open([self._make_sender(queue, {}), self._make_receiver(queue, options)])
        return cast(ServiceBusSender, sender), cast(ServiceBusReceiver, receiver)

    def close(self) -> None:
        """The client goes last: it would close its links one after the other."""
        links, self._links = self._links, []

        def close_all() -> None:
            with ThreadPoolExecutor(max(len(links), 1)) as threads:
                list(threads.map(lambda link: link.close(), links))
            self._close_client()

        self._closer.close(close_all)


def _entered(link: Any) -> Any:
    return link.__enter__()


class SyncSdk(PythonSdk):
    def __init__(self, connection_string: str, closer: Closer, **options: Any) -> None:
        super().__init__(closer)
        self._client = ServiceBusClient.from_connection_string(connection_string, **options)

    def _make_sender(self, queue: str, options: dict[str, Any]) -> Any:
        return self._client.get_queue_sender(queue, **options)

    def _make_receiver(self, queue: str, options: dict[str, Any]) -> Any:
        return self._client.get_queue_receiver(queue, **options)

    def _make_topic_sender(self, topic: str, options: dict[str, Any]) -> Any:
        return self._client.get_topic_sender(topic, **options)

    def _make_subscription_receiver(self, topic: str, subscription: str, options: dict[str, Any]) -> Any:
        return self._client.get_subscription_receiver(topic, subscription, **options)

    def _close_client(self) -> None:
        self._client.close()


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop of the async SDK", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call it in the loop, and wait for the result if it is one to be waited for."""

        async def run() -> Any:
            result = function(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(CALL_WITHIN_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """An asynchronous sender or receiver that looks like its blocking twin."""

    def __init__(self, target: Any, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name == "session" and attribute is not None:
            return Blocking(attribute, self._loop)
        return partial(self._loop.call, attribute) if callable(attribute) else attribute

    def __enter__(self) -> Blocking:
        self._loop.call(self._target.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call(self._target.__aexit__, *error)

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.call(self._target.__anext__)
            except StopAsyncIteration:
                return


class AsyncSdk(PythonSdk):
    def __init__(self, connection_string: str, closer: Closer, loop: LoopThread, **options: Any) -> None:
        super().__init__(closer)
        self._loop = loop
        self._client = loop.call(AsyncServiceBusClient.from_connection_string, connection_string, **options)

    def _make_sender(self, queue: str, options: dict[str, Any]) -> Any:
        return Blocking(self._loop.call(self._client.get_queue_sender, queue, **options), self._loop)

    def _make_receiver(self, queue: str, options: dict[str, Any]) -> Any:
        return Blocking(self._loop.call(self._client.get_queue_receiver, queue, **options), self._loop)

    def _make_topic_sender(self, topic: str, options: dict[str, Any]) -> Any:
        return Blocking(self._loop.call(self._client.get_topic_sender, topic, **options), self._loop)

    def _make_subscription_receiver(self, topic: str, subscription: str, options: dict[str, Any]) -> Any:
        receiver = self._loop.call(self._client.get_subscription_receiver, topic, subscription, **options)
        return Blocking(receiver, self._loop)

    def _close_client(self) -> None:
        self._loop.call(self._client.close)


def receive(receiver: ServiceBusReceiver, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
    """Exactly `count` messages: one call returns as soon as there is a pause."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        arrived = receiver.receive_messages(max_message_count=count - len(messages), **options)
        assert arrived, f"{len(messages)} of {count} messages came"
        messages += arrived
    return messages


def short_lived(body: str, **options: Any) -> ServiceBusMessage:
    """A message that expires after a millisecond. The SDK's own times to live are whole seconds."""
    message = ServiceBusMessage(body, time_to_live=timedelta(seconds=1), **options)
    header = message.raw_amqp_message.header
    assert header is not None
    header.time_to_live = 1
    return message


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    return b"".join(cast("Iterator[bytes]", message.body))


def bodies_of(messages: list[ServiceBusReceivedMessage]) -> list[bytes]:
    return [body_of(message) for message in messages]
