"""Spans of OpenTelemetry for messages whose senders ask for them; nothing of it is loaded where it is off. See
docs/tracing.md."""
