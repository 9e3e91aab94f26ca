"""One AMQP connection as a pure state machine: bytes in, events out."""
