"""Sources and targets of links.

What the client sent is kept as it came, because it is echoed verbatim: clients compare what comes back with
what they sent, byte by byte in places.
"""

from __future__ import annotations

from typing import Final, final

from tandembus.amqp.encoding.codec import decode_between, encode
from tandembus.amqp.encoding.descriptors import COORDINATOR, SOURCE, TARGET
from tandembus.amqp.encoding.fields import Fields
from tandembus.amqp.encoding.values import symbol, symbol_map, symbols, uint
from tandembus.errors import MalformedData


@final
class Terminus:
    """One end of a link. `raw` is the encoded list as it came (empty for one we made ourselves)."""

    __slots__ = (
        "address",
        "capabilities",
        "code",
        "durable",
        "dynamic",
        "expiry",
        "filter",
        "raw",
        "timeout",
    )

    def __init__(
        self,
        code: int,
        address: str | None = None,
        filter: dict[str, object] | None = None,
        durable: int = 0,
        expiry: str = "session-end",
        timeout: int = 0,
        dynamic: bool = False,
        capabilities: list[str] | None = None,
        raw: bytes = b"",
    ) -> None:
        self.code: Final = code
        self.address: Final = address
        self.filter: Final = filter
        self.durable: Final = durable
        self.expiry: Final = expiry
        self.timeout: Final = timeout
        self.dynamic: Final = dynamic
        self.capabilities: Final = capabilities
        self.raw: Final = raw

    @property
    def is_coordinator(self) -> bool:
        return self.code == COORDINATOR

    def with_filter(self, filter: dict[str, object]) -> Terminus:
        """The same terminus with another filter, to be written anew."""
        return Terminus(
            self.code,
            self.address,
            filter,
            self.durable,
            self.expiry,
            self.timeout,
            self.dynamic,
            self.capabilities,
        )

    def encoded(self) -> bytes:
        """The described list. Never an empty one, which clients take for a missing terminus."""
        content = self.raw if _has_fields(self.raw) else self._content()
        return bytes((0x00, 0x53, self.code)) + content

    def _content(self) -> bytes:
        if self.code == COORDINATOR:
            return encode([_capabilities(self.capabilities)])
        fields: list[object] = [
            self.address,
            uint(self.durable),
            symbol(self.expiry),
            uint(self.timeout),
            self.dynamic,
            None,
        ]
        if self.code == SOURCE:
            fields.append(None)
            fields.append(None if self.filter is None else symbol_map(self.filter))
            fields.append(None)
            fields.append(None)
        fields.append(_capabilities(self.capabilities))
        return encode(fields)

    def __repr__(self) -> str:
        return f"Terminus(0x{self.code:02X}, {self.address!r}, {self.filter!r})"


def source(address: str | None, filter: dict[str, object] | None = None) -> Terminus:
    return Terminus(SOURCE, address, filter)


def target(address: str | None) -> Terminus:
    return Terminus(TARGET, address)


def _capabilities(names: list[str] | None) -> object:
    return None if names is None else symbols(names)


def _has_fields(raw: bytes) -> bool:
    if raw[:1] == b"\xc0":
        return len(raw) > 3 and raw[2] > 0
    return len(raw) > 9


def read_terminus(raw: bytes) -> Terminus | None:
    """From a field of attach as it stands; None for null."""
    if not raw:
        return None
    decode_between(raw, 0, len(raw))  # it will be echoed: what is malformed in a field that we pass over ends here
    fields = Fields()
    code = int(fields.open(raw, 0, len(raw)))
    content = raw[fields.list_at :]  # the descriptor is written by us, always in the short form
    if code == COORDINATOR:
        return Terminus(code, capabilities=_names(fields.value()), raw=content)
    if code != SOURCE and code != TARGET:
        raise MalformedData("an unknown kind of terminus")
    address = fields.value()
    durable = int(fields.number(0))
    expiry = fields.text()
    timeout = int(fields.number(0))
    dynamic = fields.flag(False)
    filter: dict[str, object] | None = None
    if code == SOURCE:
        fields.skip(2)
        filter = fields.symbol_keyed()
        fields.skip(2)
    else:
        fields.skip(1)
    return Terminus(
        code,
        address if isinstance(address, str) else None,
        filter,
        durable,
        "session-end" if expiry is None else expiry,
        timeout,
        dynamic,
        _names(fields.value()),
        content,
    )


def _names(value: object) -> list[str] | None:
    """Capabilities: an array of symbols, or just one."""
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
