"""The columns of a message, as Spark declares them and as Arrow carries them: both name the same, in the same order."""

from __future__ import annotations

from typing import Final

SPARK_SCHEMA: Final = (
    "entity string, fragment int, sequence_number long, message_id string, session_id string, partition_key string, "
    "subject string, content_type string, correlation_id string, reply_to string, to string, "
    "enqueued_time timestamp, expires_at timestamp, delivery_count int, state string, dead_letter_reason string, "
    "properties map<string,string>, property_types map<string,string>, body binary"
)
