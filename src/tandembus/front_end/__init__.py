"""What clients connect to: AMQP and HTTP on the same ports."""
