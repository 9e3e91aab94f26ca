"""The performatives of AMQP 1.0 (specification 2.7), as read from frames. Writing them stands in `frames.py`.

Optional numbers that are absent are -1. What is mandatory is checked here, so that the engine meets no hole.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import skip_value
from tandembus.amqp.encoding.delivery_states import ACCEPTED_OUTCOME, AmqpError, Outcome, error_of, read_state
from tandembus.amqp.encoding.fields import Fields
from tandembus.amqp.encoding.terminus import Terminus, read_terminus
from tandembus.errors import MalformedData

MIN_MAX_FRAME_SIZE: Final = 512
UINT_MAX: Final = 0xFFFFFFFF

SENDER: Final = False
RECEIVER: Final = True


@final
class Open:
    __slots__ = ("channel_max", "container_id", "hostname", "idle_timeout_ms", "max_frame_size", "properties")

    def __init__(self, fields: Fields) -> None:
        container_id = fields.text()
        if container_id is None:
            raise MalformedData("open without container-id")
        self.container_id: Final = container_id
        self.hostname: Final = fields.text()
        self.max_frame_size: i64 = max(fields.number(UINT_MAX), MIN_MAX_FRAME_SIZE)
        self.channel_max: i64 = fields.number(0xFFFF)
        self.idle_timeout_ms: i64 = fields.number(0)
        fields.skip(4)
        self.properties: Final = fields.symbol_keyed()


@final
class Begin:
    __slots__ = ("handle_max", "incoming_window", "next_outgoing_id", "outgoing_window", "remote_channel")

    def __init__(self, fields: Fields) -> None:
        self.remote_channel: i64 = fields.number(-1)
        self.next_outgoing_id: i64 = fields.number(0)
        self.incoming_window: i64 = fields.number(0)
        self.outgoing_window: i64 = fields.number(0)
        self.handle_max: i64 = fields.number(UINT_MAX)


@final
class Attach:
    __slots__ = (
        "handle",
        "initial_delivery_count",
        "is_receiver",
        "max_message_size",
        "name",
        "properties",
        "rcv_settle_mode",
        "snd_settle_mode",
        "source",
        "target",
    )

    def __init__(self, fields: Fields) -> None:
        name = fields.text()
        if name is None:
            raise MalformedData("attach without name")
        self.name: Final = name
        self.handle: i64 = _mandatory(fields.number(-1), "attach without handle")
        self.is_receiver: Final = fields.flag(False)
        self.snd_settle_mode: Final = _settle_mode(fields.number(2), 2)
        self.rcv_settle_mode: Final = _settle_mode(fields.number(0), 1)
        self.source: Final[Terminus | None] = read_terminus(fields.raw())
        self.target: Final[Terminus | None] = read_terminus(fields.raw())
        fields.skip(2)
        self.initial_delivery_count: i64 = fields.number(0)
        self.max_message_size: i64 = fields.size()
        fields.skip(2)
        self.properties: Final = fields.symbol_keyed()


@final
class Flow:
    """Filled anew for every frame."""

    __slots__ = (
        "available",
        "delivery_count",
        "drain",
        "echo",
        "handle",
        "incoming_window",
        "link_credit",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing_window",
    )

    def __init__(self) -> None:
        self.next_incoming_id: i64 = -1
        self.incoming_window: i64 = 0
        self.next_outgoing_id: i64 = 0
        self.outgoing_window: i64 = 0
        self.handle: i64 = -1
        self.delivery_count: i64 = -1
        self.link_credit: i64 = -1
        self.available: i64 = 0
        self.drain: bool = False
        self.echo: bool = False

    def read(self, fields: Fields) -> None:
        self.next_incoming_id = fields.number(-1)
        self.incoming_window = fields.number(0)
        self.next_outgoing_id = fields.number(0)
        self.outgoing_window = fields.number(0)
        self.handle = fields.number(-1)
        self.delivery_count = fields.number(-1)
        self.link_credit = fields.number(-1)
        self.available = fields.number(0)
        self.drain = fields.flag(False)
        self.echo = fields.flag(False)


@final
class Transfer:
    """Filled anew for every frame; the payload begins at `payload_at`, behind the list."""

    __slots__ = (
        "aborted",
        "delivery_id",
        "handle",
        "message_format",
        "more",
        "payload_at",
        "settled",
        "state",
        "tag",
    )

    def __init__(self) -> None:
        self.handle: i64 = 0
        self.delivery_id: i64 = -1
        self.tag: bytes | None = None
        self.message_format: i64 = 0
        self.settled: bool = False
        self.more: bool = False
        self.state: Outcome | None = None
        self.aborted: bool = False
        self.payload_at: i64 = 0

    def read(self, fields: Fields) -> None:
        self.handle = _mandatory(fields.number(-1), "transfer without handle")
        self.delivery_id = fields.number(-1)
        self.tag = fields.binary()
        self.message_format = fields.number(0)
        self.settled = fields.flag(False)
        self.more = fields.flag(False)
        self.payload_at = fields.stop
        self.state = None
        self.aborted = False
        if fields.left > 0:
            fields.skip(1)
            self.state = _read_state(fields)
            fields.skip(1)
            self.aborted = fields.flag(False)


@final
class Disposition:
    """Filled anew for every frame."""

    __slots__ = ("first", "is_receiver", "last", "settled", "state")

    def __init__(self) -> None:
        self.is_receiver: bool = False
        self.first: i64 = 0
        self.last: i64 = 0
        self.settled: bool = False
        self.state: Outcome | None = None

    def read(self, fields: Fields) -> None:
        self.is_receiver = fields.flag(False)
        self.first = _mandatory(fields.number(-1), "disposition without first")
        self.last = fields.number(self.first)
        self.settled = fields.flag(False)
        self.state = _read_state(fields)


@final
class Detach:
    __slots__ = ("closed", "error", "handle")

    def __init__(self, fields: Fields) -> None:
        self.handle: i64 = _mandatory(fields.number(-1), "detach without handle")
        self.closed: Final = fields.flag(False)
        self.error: Final[AmqpError | None] = error_of(fields.value())


def read_error(fields: Fields) -> AmqpError | None:
    """The only field of end and of close."""
    return error_of(fields.value())


def _settle_mode(number: i64, highest: i64) -> int:
    if number > highest:
        raise MalformedData("an unknown settle mode")
    return int(number)


def _mandatory(number: i64, complaint: str) -> i64:
    if number < 0:
        raise MalformedData(complaint)
    return number


def _read_state(fields: Fields) -> Outcome | None:
    if fields.left <= 0:
        return None
    data = fields.data
    at: i64 = fields.at
    fields.left -= 1
    if (
        at + 4 <= fields.stop
        and data[at + 1] == 0x53
        and data[at + 2] == 0x24
        and data[at] == 0
        and data[at + 3] == 0x45
    ):
        fields.at = at + 4
        return ACCEPTED_OUTCOME
    fields.at = skip_value(data, at, fields.stop)
    return read_state(data, at, fields.at)
