"""The AMQP front end: links that turn deliveries into operations and answers into dispositions."""
