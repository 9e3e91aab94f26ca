"""A message broker that speaks the AMQP 1.0 protocol of Azure Service Bus."""

__version__ = "0.1.0"
