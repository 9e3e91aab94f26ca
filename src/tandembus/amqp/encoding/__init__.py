"""AMQP 1.0 types, frames, performatives and message sections as bytes."""
