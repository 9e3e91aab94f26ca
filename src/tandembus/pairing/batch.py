"""A batch that can be sent to the backlog, too."""

from __future__ import annotations

from typing import final

from azure.servicebus import ServiceBusMessageBatch

from tandembus.pairing.transfer import AnyMessage


@final
class PairedMessageBatch:
    """The SDK's batch, and beside it the messages. The SDK writes a message down when it is added, and so it is sent,
    to either namespace: callers may add one object again and again, changed in between."""

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
