"""AMQP inside WebSocket frames, for clients that only reach the world through HTTP."""
