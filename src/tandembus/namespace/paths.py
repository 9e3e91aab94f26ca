"""From what a client writes as an address to the entity it means. The one place that takes addresses apart.

Clients write `queue`, `/queue` or a whole URI whose host they do not mean: the connection already says which
namespace it is. Names are case-insensitive; the lower-cased `key` is what everything is found by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from tandembus.descriptions.names import SUBSCRIPTIONS
from tandembus.errors import InvalidArgument
from tandembus.security.scopes import fold, path_of_uri, strip_host
from tandembus.store import messaging_store

TOKEN_NODE: Final = "$cbs"
MANAGEMENT: Final = "$management"
DEAD_LETTER: Final = "$deadletterqueue"
TRANSFER: Final = "$transfer"
MAX_ADDRESS_LENGTH: Final = 2_048


class SubQueue(Enum):
    """The lane of an entity that an address names; the value is how it is written behind the entity's
    path."""

    MAIN = ""
    DEAD_LETTER = "/$DeadLetterQueue"
    TRANSFER_DEAD_LETTER = "/$Transfer/$DeadLetterQueue"

    @property
    def lane(self) -> int:
        """Where its messages are in the entity's fragment."""
        return _LANES[self]


_LANES: Final = {
    SubQueue.MAIN: messaging_store.MAIN,
    SubQueue.DEAD_LETTER: messaging_store.DEAD_LETTER,
    SubQueue.TRANSFER_DEAD_LETTER: messaging_store.TRANSFER_DEAD_LETTER,
}


@dataclass(frozen=True, slots=True)
class EntityAddress:
    """Which entity, which of its sub-queues, and whether its management node is meant."""

    key: str
    """The entity's path in lower case, without suffixes: what the catalog finds it by."""
    path: str
    """The same as the client wrote it: what error texts show."""
    sub_queue: SubQueue = SubQueue.MAIN
    is_management: bool = False

    @property
    def is_token_node(self) -> bool:
        return self.key == TOKEN_NODE and not self.is_management and self.sub_queue is SubQueue.MAIN

    @property
    def claim_path(self) -> str:
        """What a claim must cover; suffixes count, so that a token for a dead-letter queue opens just
        that."""
        if self.sub_queue is SubQueue.MAIN and not self.is_management:
            return self.key.lstrip("/")
        management = f"/{MANAGEMENT}" if self.is_management else ""
        return (self.key + fold(self.sub_queue.value) + management).lstrip("/")


def parse_link_address(address: str) -> EntityAddress:
    """The address of an AMQP link, or the audience of a token: a path or a URI, percent-encoded or not."""
    _check_length(address)
    return _parsed_link_address(address)


@lru_cache(maxsize=1024)
def _parsed_link_address(address: str) -> EntityAddress:
    """The same few addresses come again and again, with every link."""
    try:
        return _parsed(path_of_uri(address))
    except UnicodeError:
        raise InvalidArgument("The address is not UTF-8.") from None


def parse_address(address: str) -> EntityAddress:
    """A path or URI in which nothing is percent-encoded (any more)."""
    _check_length(address)
    return _parsed(strip_host(address))


def _check_length(address: str) -> None:
    if len(address) > MAX_ADDRESS_LENGTH:
        raise InvalidArgument(f"The address has more than {MAX_ADDRESS_LENGTH} characters.")


def _parsed(path: str) -> EntityAddress:
    if any(character <= " " or character == "\x7f" for character in path):
        raise InvalidArgument("The address contains spaces or control characters.")
    segments = path.split("/")
    is_management = _take(segments, MANAGEMENT)
    sub_queue = _take_sub_queue(segments)
    path = "/".join(segments)
    if not path and (sub_queue is not SubQueue.MAIN or not is_management):
        raise InvalidArgument("The address names no entity.")
    return EntityAddress(fold(path), path, sub_queue, is_management)


def split_subscription(path: str) -> tuple[str, str] | None:
    """Topic and subscription of `topic/Subscriptions/name`; None for every other path.

    A subscription's name is one segment, so it is the last one, and the word stands right before it: a topic or
    a subscription may itself be called 'subscriptions'.
    """
    rest, _, name = path.rpartition("/")
    topic, _, word = rest.rpartition("/")
    if topic and name and fold(word) == fold(SUBSCRIPTIONS):
        return topic, name
    return None


def home_of(address: EntityAddress) -> str:
    """Where messages of this entity are sent to: a subscription's come through its topic."""
    found = split_subscription(address.path)
    return address.path if found is None else found[0]


def parse_http_path(raw_path: str) -> EntityAddress:
    """The path of an HTTP request as it came on the line, decoded exactly once."""
    return parse_address("/" + decode_http_path(raw_path))


def decode_http_path(raw_path: str) -> str:
    """Percent-decoding, once. What stays encoded then ('%252F') is no part of any name and is found
    nowhere."""
    path = raw_path.split("?", 1)[0].split("#", 1)[0]
    try:
        return unquote_to_bytes(path).decode("utf-8").strip("/")
    except UnicodeError:
        raise InvalidArgument("The path of the request is not UTF-8.") from None


def _take(segments: list[str], suffix: str) -> bool:
    """Remove the last segment if it is this suffix, in whatever letters."""
    if segments and fold(segments[-1]) == suffix:
        segments.pop()
        return True
    return False


def _take_sub_queue(segments: list[str]) -> SubQueue:
    if not _take(segments, DEAD_LETTER):
        return SubQueue.MAIN
    return SubQueue.TRANSFER_DEAD_LETTER if _take(segments, TRANSFER) else SubQueue.DEAD_LETTER
