"""Shared access signatures and connection strings: their texts, made and taken apart.

Used by the server and by clients. What a valid signature allows is `claims.py`'s business.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus

from tandembus.errors import InvalidArgument, Unauthorized

TOKEN_PREFIX: Final = "SharedAccessSignature "
ROOT_POLICY: Final = "RootManageSharedAccessKey"
MAX_FIELDS: Final = 16
MAX_CONNECTION_STRING_LENGTH: Final = 8_192


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token's fields; nothing of it is to be believed before `is_signed_with` says so."""

    resource: str
    """`sr` still encoded, exactly as it came: that text is what was signed, and clients encode it
    differently."""
    expires: str
    """`se` as it came, for the same reason."""
    policy: str
    signature: str = field(repr=False)

    @property
    def uri(self) -> str:
        return unquote_plus(self.resource)

    @property
    def expires_at(self) -> int:
        return int(self.expires)

    def is_signed_with(self, key: str) -> bool:
        """Takes the same time for every wrong signature."""
        expected = sign(self.resource, self.expires, key)
        return hmac.compare_digest(expected.encode("ascii"), self.signature.encode("utf-8", "replace"))


def sign(encoded_resource: str, expires: str, key: str) -> str:
    # The key is used as text: it looks like base64 and is not decoded.
    text = f"{encoded_resource}\n{expires}".encode("utf-8", "replace")
    return base64.b64encode(hmac.new(key.encode(), text, hashlib.sha256).digest()).decode("ascii")


def make_token(uri: str, policy_name: str, key: str, expires_at: float) -> str:
    resource = quote_plus(uri)
    expires = str(int(expires_at))
    signature = quote_plus(sign(resource, expires, key))
    return f"{TOKEN_PREFIX}sr={resource}&sig={signature}&se={expires}&skn={quote_plus(policy_name)}"


def is_sas_token(token: str) -> bool:
    return token[: len(TOKEN_PREFIX)].lower() == TOKEN_PREFIX.lower()


def parse_token(token: str) -> SasToken:
    """The fields of a token, in whatever order they stand. Raises Unauthorized; its text repeats nothing
    secret."""
    if not is_sas_token(token):
        raise Unauthorized("The token is not a shared access signature.")
    fields = _fields(token[len(TOKEN_PREFIX) :].strip())
    missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
    if missing:
        raise Unauthorized(f"The token has no {' and no '.join(missing)}.")
    expires = fields["se"]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 18):
        raise Unauthorized("The token's expiry (se) is not a number of seconds since 1970.")
    # Base64 has '+' and no space, so '+' in the signature is itself, whether it came encoded or not.
    return SasToken(fields["sr"], expires, unquote_plus(fields["skn"]), unquote(fields["sig"]))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    parts = text.split("&", MAX_FIELDS)
    if len(parts) > MAX_FIELDS:
        raise Unauthorized("The token has too many fields.")
    for part in parts:
        name, _, value = part.partition("=")
        if name in fields:
            # Two readers could each believe another one of them.
            raise Unauthorized("The token has a field twice.")
        fields[name] = value
    return fields


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """What a connection string says. `port` is None where it names none."""

    host: str
    port: int | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    use_emulator: bool = False
    signature: str | None = field(default=None, repr=False)
    """A ready token, instead of a key."""

    @property
    def endpoint(self) -> str:
        """host[:port], as it stands in URIs."""
        return _endpoint(self.host, self.port)


def make_connection_string(
    host: str,
    port: int | None,
    key_name: str,
    key: str,
    entity_path: str | None = None,
    use_emulator: bool = False,
) -> str:
    """`use_emulator` makes the SDKs speak plain AMQP to the given port; without it they take TLS on 5671."""
    parts = [
        f"Endpoint=sb://{_endpoint(host, port)}/",
        f"SharedAccessKeyName={key_name}",
        f"SharedAccessKey={key}",
    ]
    if entity_path is not None:
        parts.append(f"EntityPath={entity_path}")
    if use_emulator:
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts)


def parse_connection_string(text: str) -> ConnectionString:
    """Raises InvalidArgument, naming the part that is wrong but never a key."""
    if len(text) > MAX_CONNECTION_STRING_LENGTH:
        raise InvalidArgument(f"The connection string has more than {MAX_CONNECTION_STRING_LENGTH} characters.")
    parts = _connection_parts(text)
    if "endpoint" not in parts:
        raise InvalidArgument("The connection string has no Endpoint=sb://HOST/.")
    host, port = _host_and_port(parts["endpoint"])
    key_name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
    if (key_name is None) != (key is None):
        raise InvalidArgument(
            "The connection string needs SharedAccessKeyName and SharedAccessKey together, or neither."
        )
    return ConnectionString(
        host=host,
        port=port,
        key_name=key_name,
        key=key,
        entity_path=parts.get("entitypath", "").strip("/") or None,
        use_emulator=_flag(parts, "UseDevelopmentEmulator"),
        signature=parts.get("sharedaccesssignature"),
    )


def _flag(parts: dict[str, str], name: str) -> bool:
    """`true` as the SDKs want it. What they take for no is refused, so that nobody wonders why TLS is spoken."""
    value = parts.get(name.lower(), "false")
    if value != "true" and value.lower() != "false":
        raise InvalidArgument(f"{name} in the connection string is '{value[:64]}': it can be true or false.")
    return value == "true"


def _connection_parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for number, part in enumerate(text.strip().strip(";").split(";"), 1):
        name, separator, value = part.strip().partition("=")
        folded = name.strip().lower()
        if not separator or not folded or not value:
            raise InvalidArgument(f"Part {number} of the connection string is not NAME=VALUE.")
        if folded in parts:
            raise InvalidArgument(f"The connection string has {name.strip()} twice.")
        parts[folded] = value.strip()
    return parts


def _host_and_port(endpoint: str) -> tuple[str, int | None]:
    _, separator, rest = endpoint.partition("://")
    authority = (rest if separator else endpoint).split("/", 1)[0]
    if authority.startswith("["):
        host, bracket, tail = authority[1:].partition("]")
        is_well_formed = bool(bracket) and (not tail or tail.startswith(":"))
        port_text = tail[1:]
    else:
        host, _, port_text = authority.partition(":")
        is_well_formed = True
    is_port = port_text.isascii() and port_text.isdigit() and 1 <= int(port_text[:6]) <= 65_535
    if not is_well_formed or not host or (port_text and not is_port):
        raise InvalidArgument("The connection string's Endpoint is not sb://HOST[:PORT]/.")
    return host, int(port_text) if port_text else None


def _endpoint(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"
