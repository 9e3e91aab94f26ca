"""Two engines that talk to each other over bytes, and a peer that writes its frames by hand."""

from __future__ import annotations

from typing import TypeVar

from tandembus.amqp.encoding import Described, Encoded, decode, symbol, ubyte, uint, ushort
from tandembus.amqp.encoding.frames import AMQP_HEADER, SASL_HEADER, frame
from tandembus.amqp.engine import (
    AmqpSession,
    Connection,
    EngineSettings,
    Event,
    IncomingLink,
    LinkAttaching,
    OutgoingLink,
    SaslInit,
    Terminus,
)

E = TypeVar("E", bound=Event)

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE = Described(0x28, ["queue"])
TARGET = Described(0x29, ["queue"])


def server_settings(max_frame_size: int = 65_536, max_message_size: int = 1_000_000) -> EngineSettings:
    return EngineSettings(
        is_server=True, container_id="server", max_frame_size=max_frame_size, max_message_size=max_message_size
    )


def client_settings(max_frame_size: int = 65_536, session_window: int = 65_536) -> EngineSettings:
    return EngineSettings(
        is_server=False,
        container_id="client",
        hostname="host",
        max_frame_size=max_frame_size,
        session_window=session_window,
    )


def only(kind: type[E], events: list[Event]) -> E:
    """The one event of this kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"{len(found)} events of {kind.__name__} in {events}"
    return found[0]


def of(kind: type[E], events: list[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


class Pair:
    """A client and a server, connected."""

    def __init__(self, server: EngineSettings | None = None, client: EngineSettings | None = None) -> None:
        self.server = Connection(server or server_settings(), 0.0)
        self.client = Connection(client or client_settings(), 0.0)
        self.at_server: list[Event] = []
        self.at_client: list[Event] = []

    def open(self, mechanism: str | None = "ANONYMOUS", response: bytes = b"") -> Pair:
        self.client.start(mechanism, response)
        self.exchange()
        return self

    def exchange(self) -> None:
        """Carry bytes both ways until nobody has more to say; the events are of this exchange alone."""
        self.at_server = []
        self.at_client = []
        while True:
            to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
            if not to_server and not to_client:
                return
            self._give_server(to_server)
            self.at_client += self.client.receive_data(to_client)

    def _give_server(self, data: bytes) -> None:
        for event in self.server.receive_data(data):
            self.at_server.append(event)
            if isinstance(event, SaslInit):
                self.server.sasl_outcome(True)
                self.at_server += self.server.receive_data(b"")

    def begin(self) -> AmqpSession:
        session = self.client.begin()
        self.exchange()
        return session

    def sender(self, session: AmqpSession, name: str = "out", limit: int = 0) -> tuple[OutgoingLink, IncomingLink]:
        """The client's sending link and the server's end of it, attached, with 100 credits."""
        link = session.attach_sender(name, "queue")
        self.exchange()
        peer = only(LinkAttaching, self.at_server).link
        assert isinstance(peer, IncomingLink)
        peer.accept(limit)
        peer.grant(100)
        self.exchange()
        return link, peer

    def receiver(self, session: AmqpSession, name: str = "in") -> tuple[IncomingLink, OutgoingLink]:
        """The client's receiving link and the server's end of it, attached, without credit."""
        link = session.attach_receiver(name, "queue", snd_settle_mode=0, rcv_settle_mode=1)
        self.exchange()
        peer = only(LinkAttaching, self.at_server).link
        assert isinstance(peer, OutgoingLink)
        peer.accept()
        self.exchange()
        return link, peer


class Frame:
    """A frame that our engine wrote, taken apart."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.type = data[5]
        self.channel = int.from_bytes(data[6:8], "big")
        self.body = data[data[4] * 4 :]
        self.code = -1
        self.fields: list[object] = []
        self.payload = b""
        if self.body:
            value, end = decode(self.body)
            assert isinstance(value, Described)
            assert isinstance(value.descriptor, int)
            assert isinstance(value.value, list)
            self.code = value.descriptor
            self.fields = value.value
            self.payload = self.body[end:]

    def __repr__(self) -> str:
        return f"Frame(0x{self.code:02X}, channel {self.channel}, {self.fields!r})"


def frames_of(data: bytes) -> list[Frame]:
    """Frames only; protocol headers are left out."""
    frames: list[Frame] = []
    at = 0
    while at < len(data):
        if data[at : at + 4] == b"AMQP":
            at += 8
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        frames.append(Frame(data[at : at + size]))
        at += size
    return frames


def written(connection: Connection, code: int) -> Frame:
    """The one frame with this performative among what is waiting to be sent."""
    found = [frame for frame in frames_of(connection.data_to_send()) if frame.code == code]
    assert len(found) == 1, found
    return found[0]


def open_frame(max_frame_size: int | None = None, idle_timeout_ms: int | None = None) -> bytes:
    fields: list[object] = ["hand", "host", None if max_frame_size is None else uint(max_frame_size), ushort(65535)]
    fields.append(None if idle_timeout_ms is None else uint(idle_timeout_ms))
    return frame(0, 0, OPEN, fields)


def begin_frame(channel: int = 1, window: int = 65_536, handle_max: int = 2**32 - 1) -> bytes:
    return frame(0, channel, BEGIN, [None, uint(0), uint(window), uint(window), uint(handle_max)])


def attach_frame(
    handle: int = 1, is_receiver: bool = False, name: str = "link", channel: int = 1, source: object = SOURCE
) -> bytes:
    fields: list[object] = [name, uint(handle), is_receiver, ubyte(0), ubyte(1), source, TARGET, None, None]
    fields.append(None if is_receiver else uint(0))
    return frame(0, channel, ATTACH, fields)


def transfer_frame(
    delivery_id: int | None,
    payload: bytes,
    more: bool = False,
    handle: int = 1,
    aborted: bool = False,
    tag: bytes = b"tag",
) -> bytes:
    fields: list[object] = [uint(handle), None if delivery_id is None else uint(delivery_id), tag, uint(0)]
    fields.extend((False, more))
    if aborted:
        fields.extend((None, None, None, True))
    return frame(0, 1, TRANSFER, fields, payload)


def flow_frame(
    handle: int | None = None,
    credit: int | None = None,
    delivery_count: int | None = None,
    drain: bool = False,
    echo: bool = False,
    next_incoming_id: int | None = 0,
    window: int = 65_536,
) -> bytes:
    numbers = (next_incoming_id, window, 0, 65_536, handle, delivery_count, credit, None)
    fields: list[object] = [None if number is None else uint(number) for number in numbers]
    fields.extend((drain, echo))
    return frame(0, 1, FLOW, fields)


def disposition_frame(first: int, last: int | None, state: bytes, settled: bool, is_receiver: bool = True) -> bytes:
    fields: list[object] = [is_receiver, uint(first), None if last is None else uint(last), settled]
    fields.append(Encoded(state) if state else None)
    return frame(0, 1, DISPOSITION, fields)


def detach_frame(handle: int = 1) -> bytes:
    return frame(0, 1, DETACH, [uint(handle), True])


def end_frame() -> bytes:
    return frame(0, 1, END, [])


SASL_ANONYMOUS = SASL_HEADER + frame(1, 0, 0x41, [symbol("ANONYMOUS"), b"", "host"])


class HandWritten:
    """A server engine and a client that is nothing but frames."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self.server = Connection(settings or server_settings(), 0.0)
        self.frames: list[Frame] = []
        self.all_frames: list[Frame] = []

    def send(self, *data: bytes) -> list[Event]:
        """Everything at once; what the server wrote is in `frames`."""
        events = self.server.receive_data(b"".join(data))
        self.take()
        return events

    def take(self) -> list[Frame]:
        self.frames = frames_of(self.server.data_to_send())
        self.all_frames += self.frames
        return self.frames

    def open(self, window: int = 65_536, max_frame_size: int | None = None) -> HandWritten:
        """Without SASL, with one session."""
        self.send(AMQP_HEADER, open_frame(max_frame_size), begin_frame(window=window))
        return self

    def attach_sender(self, handle: int = 1, name: str = "link", limit: int = 0, credit: int = 0) -> IncomingLink:
        """The hand-written client sends; nothing but the attach answer is written unless there is credit."""
        link = only(LinkAttaching, self.send(attach_frame(handle, False, name))).link
        assert isinstance(link, IncomingLink)
        link.accept(limit)
        if credit:
            link.grant(credit)
        self.take()
        return link

    def attach_receiver(self, handle: int = 1, name: str = "link", credit: int = 0) -> OutgoingLink:
        link = only(LinkAttaching, self.send(attach_frame(handle, True, name))).link
        assert isinstance(link, OutgoingLink)
        link.accept()
        if credit:
            self.send(flow_frame(handle, credit, 0))
        self.take()
        return link


def filtered(entries: dict[str, object]) -> Terminus:
    return Terminus(0x28, "queue", entries)
