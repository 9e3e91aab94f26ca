"""The AMQP front end: connections and links become operations on entities."""
