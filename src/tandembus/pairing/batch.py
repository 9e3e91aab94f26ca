"""A batch that either namespace can take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

AnyMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
"""What the SDK's senders take for a message."""


@final
class PairedMessageBatch:
    """The SDK's batch together with its messages. The SDK encodes a message when it is added, and that is what is sent:
    callers may change an object and add it again."""

    def __init__(self, sdk_batch: ServiceBusMessageBatch) -> None:
        self.sdk_batch = sdk_batch
        self.messages: list[AnyMessage] = []

    def add_message(self, message: AnyMessage) -> None:
        """Raises MessageSizeExceededError when the batch is full."""
        self.sdk_batch.add_message(message)
        self.messages.append(message)

    @property
    def max_size_in_bytes(self) -> int:
        return self.sdk_batch.max_size_in_bytes

    @property
    def size_in_bytes(self) -> int:
        return self.sdk_batch.size_in_bytes

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"PairedMessageBatch(max_size_in_bytes={self.max_size_in_bytes}, message_count={len(self)})"
