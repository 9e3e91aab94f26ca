"""A small fast Service Bus client on the engine, for moving many messages."""
