"""The wire: AMQP 1.0 as values and state machines. No I/O, no clock, no word of queues."""
