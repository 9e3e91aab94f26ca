"""A small fast Service Bus client on the engine, for moving many messages.

    async with await connect(connection_string) as bus:
        sender = await bus.sender("orders")
        await sender.send(OutgoingMessage("hello"))
        receiver = await bus.receiver("orders")
        for message in await receiver.receive(10, wait_s=5.0):
            await receiver.complete(message)

Works against any Service Bus namespace. `tandembus.client.administration` creates and changes entities and
rules over HTTP; it stands apart because it needs an HTTP library, which takes its time to load.
"""

from tandembus.client.addresses import SubQueue, subscription_path
from tandembus.client.errors import ClientFailure, ConnectionLost
from tandembus.client.management import Disposition, Management
from tandembus.client.messages import OutgoingMessage, Payload, ReceivedMessage
from tandembus.client.receiver import ReceiveMode, Receiver
from tandembus.client.sender import Sender
from tandembus.client.service_bus import ServiceBus, connect
from tandembus.client.session_receiver import SessionReceiver

__all__ = [
    "ClientFailure",
    "ConnectionLost",
    "Disposition",
    "Management",
    "OutgoingMessage",
    "Payload",
    "ReceiveMode",
    "ReceivedMessage",
    "Receiver",
    "Sender",
    "ServiceBus",
    "SessionReceiver",
    "SubQueue",
    "connect",
    "subscription_path",
]
