"""Which requests are about messages: `PATH/messages`, what stands behind it, and the entity in front."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.namespace.paths import EntityAddress, decode_http_path, parse_address

MESSAGES: Final = "messages"
HEAD: Final = "head"
_TOKEN: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)


class Target(Enum):
    """What of an entity's messages a request is about."""

    ALL = "messages"
    HEAD = "head"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class MessagePath:
    address: EntityAddress
    target: Target
    behind: str
    """Rest of the address: clients sign for the entity, for `PATH/messages` or for the whole address."""
    lock_token: bytes = b""


def parse_message_path(raw_path: str) -> MessagePath | None:
    """None where a request is about something else. Segments are told apart before they are decoded: a message id may
    hold anything."""
    segments = raw_path.split("?", 1)[0].strip("/").split("/")
    folded = [segment.lower() for segment in segments]
    if len(segments) > 1 and folded[-1] == MESSAGES:
        return _path(segments[:-1], [], Target.ALL)
    if len(segments) > 2 and folded[-2:] == [MESSAGES, HEAD]:
        return _path(segments[:-2], [HEAD], Target.HEAD)
    if len(segments) > 3 and folded[-3] == MESSAGES and _TOKEN.fullmatch(segments[-1]):
        token = uuid.UUID(segments[-1]).bytes_le
        return _path(segments[:-3], segments[-2:], Target.LOCKED, token)
    return None


def _path(entity: list[str], behind: list[str], target: Target, lock_token: bytes = b"") -> MessagePath:
    address = parse_address("/" + decode_http_path("/".join(entity)))
    decoded = "".join([f"/{decode_http_path(one)}" for one in behind])
    return MessagePath(address, target, f"/{MESSAGES}{decoded}", lock_token)
