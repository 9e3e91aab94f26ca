"""How the two ends of a connection come to trust each other: bytes in, bytes out, nothing here reads a socket.

    caller                                                   listener
      │── HELLO    versions, features, role, facts, nonce ──────▶│
      │◀─ WELCOME  versions, features, nonce, proof ─────────────│   it has the install key: it may be told things
      │── PROOF    proof ───────────────────────────────────────▶│   so has the caller: it may be let in
      │◀─ READY    facts ────────────────────────────────────────│

A proof is an HMAC over a word for the side and everything said before, both nonces included: neither can be used a
second time, none can be turned around against its maker, and nobody can talk two ends into an older version. Unknown
fields are passed over, so that two neighbouring versions understand each other.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import MalformedData, NotSupported, Unauthorized

LOWEST_VERSION: Final = 1
HIGHEST_VERSION: Final = 1
NONCE_BYTES: Final = 32
KEY_BYTES: Final = 32
"""What an install key has at least."""
MAX_FEATURES: Final = 64

_CALLER: Final = b"tandembus caller\0"
_LISTENER: Final = b"tandembus listener\0"


@dataclass(frozen=True, slots=True)
class Party:
    """What one end says of itself."""

    role: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """Index, store, epoch, catalog version ...: plain values."""
    features: frozenset[str] = frozenset()
    lowest_version: int = LOWEST_VERSION
    highest_version: int = HIGHEST_VERSION


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a handshake has come to: both ends have the key, and speak this version."""

    version: int
    features: frozenset[str]
    """Those that both ends have."""
    role: str
    facts: Mapping[str, object]
    """Of the other end."""


class CallerHandshake:
    def __init__(self, key: bytes, party: Party) -> None:
        self._key = _checked(key)
        self._party = party
        self._hello = b""
        self._version = 0
        self._features: frozenset[str] = frozenset()

    def hello(self) -> bytes:
        party = self._party
        self._hello = encode({**_offer(party), "role": party.role, "facts": dict(party.facts)})
        return self._hello

    def welcome(self, body: bytes) -> bytes:
        """The listener's answer; returns our proof. Raises Unauthorized when the listener has none."""
        fields = _fields(body)
        proof = _bytes(fields, "proof")
        said = _bytes(fields, "said")
        if not hmac.compare_digest(proof, _proof(self._key, _LISTENER, self._hello, said)):
            raise Unauthorized("The other end does not have the install key.")
        offer = _fields(said)
        _bytes(offer, "nonce", NONCE_BYTES)
        self._version = _common_version(self._party, offer)
        self._features = _common_features(self._party, offer)
        return encode({"proof": _proof(self._key, _CALLER, self._hello, said)})

    def ready(self, body: bytes) -> Agreement:
        fields = _fields(body)
        return Agreement(self._version, self._features, _text(fields, "role"), _facts(fields))


class ListenerHandshake:
    def __init__(self, key: bytes, party: Party) -> None:
        self._key = _checked(key)
        self._party = party
        self._hello = b""
        self._said = b""
        self._offer: dict[str, object] = {}

    def hello(self, body: bytes) -> bytes:
        """Returns our welcome. Raises NotSupported when there is no version that both speak."""
        self._offer = _fields(body)
        _bytes(self._offer, "nonce", NONCE_BYTES)
        _common_version(self._party, self._offer)
        self._hello = body
        self._said = encode(_offer(self._party))
        return encode({"said": self._said, "proof": _proof(self._key, _LISTENER, body, self._said)})

    def proof(self, body: bytes) -> Agreement:
        """Raises Unauthorized: only somebody with the key, who has seen the nonce of just now, can have made it."""
        given = _bytes(_fields(body), "proof")
        if not hmac.compare_digest(given, _proof(self._key, _CALLER, self._hello, self._said)):
            raise Unauthorized("The other end does not have the install key.")
        party, offer = self._party, self._offer
        return Agreement(
            _common_version(party, offer), _common_features(party, offer), _text(offer, "role"), _facts(offer)
        )

    def ready(self, facts: Mapping[str, object]) -> bytes:
        return encode({"role": self._party.role, "facts": {**self._party.facts, **facts}})


def _checked(key: bytes) -> bytes:
    if len(key) < KEY_BYTES:
        raise Unauthorized(f"An install key has at least {KEY_BYTES} bytes.")
    return key


def _proof(key: bytes, side: bytes, hello: bytes, said: bytes) -> bytes:
    return hmac.new(key, side + hashlib.sha256(hello).digest() + hashlib.sha256(said).digest(), hashlib.sha256).digest()


def _offer(party: Party) -> dict[object, object]:
    return {
        "lowest": party.lowest_version,
        "highest": party.highest_version,
        "features": sorted(party.features),
        "nonce": secrets.token_bytes(NONCE_BYTES),
    }


def _common_version(party: Party, offer: Mapping[str, object]) -> int:
    lowest, highest = _number(offer, "lowest"), _number(offer, "highest")
    version = min(party.highest_version, highest)
    if lowest > highest or version < max(party.lowest_version, lowest):
        raise NotSupported(
            f"No common version: one end speaks {party.lowest_version} to {party.highest_version}, "
            f"the other {lowest} to {highest}."
        )
    return version


def _common_features(party: Party, offer: Mapping[str, object]) -> frozenset[str]:
    named = offer.get("features")
    if not isinstance(named, list) or len(named) > MAX_FEATURES:
        raise MalformedData("a hello without its features")
    return party.features & {name for name in named if isinstance(name, str)}


def _fields(body: bytes) -> dict[str, object]:
    value, end = decode(body)
    if not isinstance(value, dict) or end != len(body):
        raise MalformedData("no fields where fields must be")
    return {name: one for name, one in value.items() if isinstance(name, str)}


def _facts(fields: Mapping[str, object]) -> Mapping[str, object]:
    facts = fields.get("facts")
    if not isinstance(facts, dict):
        raise MalformedData("a hello without facts")
    return {name: one for name, one in facts.items() if isinstance(name, str)}


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedData(f"'{name}' is no number")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedData(f"'{name}' is no text")
    return value


def _bytes(fields: Mapping[str, object], name: str, size: int | None = None) -> bytes:
    value = fields.get(name)
    if not isinstance(value, bytes) or (size is not None and len(value) != size):
        raise MalformedData(f"'{name}' is not what it must be")
    return value
