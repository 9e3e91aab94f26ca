"""What one side of a connection says about itself, and its limits. They are checked where the bytes enter."""

from __future__ import annotations

from typing import Final, final

DEFAULT_MECHANISMS: Final = ("ANONYMOUS", "PLAIN", "MSSBCBS")

MAX_SASL_FRAME_SIZE: Final = 16_384
MAX_PIPELINED_BYTES: Final = 262_144
"""What may wait, unread, while somebody decides about the peer's credentials."""
MAX_TRANSFERS_BEYOND_CREDIT: Final = 10_100
"""One widely used client assumes 10,000 credits once attached; a little more covers what crosses on the way."""
WINDOW_REFRESH_TRANSFERS: Final = 2_048
PART_OVERHEAD_BYTES: Final = 64
"""What a part of an unfinished delivery costs besides its bytes: many tiny frames do not come for free."""
MAX_TAG_BYTES: Final = 32


@final
class EngineSettings:
    __slots__ = (
        "channel_max",
        "container_id",
        "handle_max",
        "hostname",
        "idle_timeout_ms",
        "is_server",
        "max_frame_size",
        "max_links",
        "max_message_size",
        "max_sessions",
        "max_unfinished_bytes",
        "max_unsettled",
        "open_timeout_s",
        "properties",
        "require_sasl",
        "sasl_mechanisms",
        "session_window",
    )

    def __init__(
        self,
        is_server: bool,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = 65_536,
        channel_max: int = 4_999,
        idle_timeout_ms: int = 240_000,
        sasl_mechanisms: tuple[str, ...] = DEFAULT_MECHANISMS,
        require_sasl: bool = False,
        max_sessions: int = 1_000,
        max_links: int = 1_000,
        handle_max: int = 0xFFFFFFFF,
        max_message_size: int = 104_857_600,
        max_unfinished_bytes: int = 134_217_728,
        max_unsettled: int = 100_000,
        session_window: int = 65_536,
        open_timeout_s: float = 60.0,
        properties: dict[str, object] | None = None,
    ) -> None:
        self.is_server: Final = is_server
        self.container_id: Final = container_id
        self.hostname: Final = hostname
        self.max_frame_size: Final = max_frame_size
        self.channel_max: Final = channel_max
        self.idle_timeout_ms: Final = idle_timeout_ms
        self.sasl_mechanisms: Final = sasl_mechanisms
        self.require_sasl: Final = require_sasl
        self.max_sessions: Final = max_sessions
        self.max_links: Final = max_links
        self.handle_max: Final = handle_max
        self.max_message_size: Final = max_message_size
        self.max_unfinished_bytes: Final = max_unfinished_bytes
        self.max_unsettled: Final = max_unsettled
        self.session_window: Final = session_window
        self.open_timeout_s: Final = open_timeout_s
        self.properties: Final = properties
