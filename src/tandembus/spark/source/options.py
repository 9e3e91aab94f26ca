"""The options of the data source, checked before anything is connected to. Nothing here shows a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.security.sas import ConnectionString, parse_connection_string

DEFAULT_MAX_MESSAGES: Final = 100_000
DEFAULT_MAX_BYTES: Final = 256 * 1024 * 1024
DEFAULT_RETRY_FOR_S: Final = 30
FIRST_NUMBER: Final = 1
LAST_NUMBER: Final = (1 << 48) - 1
MAX_OWNER_LENGTH: Final = 128
AMQP_PORTS: Final = (5671, 5672)
BACKENDS: Final = ("native", "azure")
PAYLOADS: Final = ("none", "also", "only")
SUB_QUEUES: Final = {
    "": "",
    "none": "",
    "deadletter": "/$DeadLetterQueue",
    "transferdeadletter": "/$Transfer/$DeadLetterQueue",
}
"""The suffixes of `client.addresses`; to import that takes longer than Spark's processes should wait."""
NAMES: Final = (
    "connection",
    "connectionEnv",
    "ca",
    "backend",
    "namespaceId",
    "entities",
    "entity",
    "owner",
    "maxMessages",
    "maxBytes",
    "numPartitions",
    "fromSequence",
    "toSequence",
    "fragments",
    "subQueue",
    "payload",
    "keyColumns",
    "retryFor",
)
_SPARKS_OWN: Final = ("path", "checkpointlocation", "query", "queryname")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASYNCHRONOUS: Final = "asyncprogresstracking"


@dataclass(frozen=True)
class SourceOptions:
    """What a reader or writer was asked to do. `connection` stays out of every text made from this."""

    connection: str | None = field(default=None, repr=False)
    connection_variable: str | None = None
    ca_path: str | None = None
    backend: str = "native"
    namespace_id: str | None = None
    entities: tuple[str, ...] = ()
    destination: str | None = None
    owner: str | None = None
    max_messages: int = DEFAULT_MAX_MESSAGES
    max_bytes: int = DEFAULT_MAX_BYTES
    partition_count: int = 1
    from_sequence: int = FIRST_NUMBER
    to_sequence: int = LAST_NUMBER
    fragments: tuple[int, ...] = ()
    payload: str = "none"
    key_columns: tuple[str, ...] = ()
    retry_for_s: float = DEFAULT_RETRY_FOR_S

    def connection_string(self) -> str:
        """Looked up when it is needed, in the process that needs it."""
        if self.connection is not None:
            return self.connection
        assert self.connection_variable is not None
        value = os.environ.get(self.connection_variable)
        if not value:
            raise InvalidArgument(
                f"the environment variable {self.connection_variable} (option connectionEnv) is not set in this "
                "process: set it where the driver and the executors are started, before Spark starts"
            )
        return value

    def parsed_connection(self) -> ConnectionString:
        return _parsed(self.connection_string())

    def namespace(self) -> str:
        """What tells this namespace from others: its address, unless the option `namespaceId` gives it a name."""
        if self.namespace_id is not None:
            return self.namespace_id
        parts = self.parsed_connection()
        host = parts.host.lower()
        return host if parts.port is None or parts.port in AMQP_PORTS else f"{host}:{parts.port}"


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Names in any case, values as text. Raises InvalidArgument with what to do next."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    connection, variable = given.get("connection") or None, given.get("connectionenv") or None
    if (connection is None) == (variable is None):
        raise InvalidArgument(
            "which namespace? Give the option connectionEnv (the name of an environment variable that holds the "
            "connection string, which stays secret then) or connection, and not both. A table of Spark's catalog keeps "
            "its OPTIONS only if CREATE TABLE named no columns"
        )
    if connection is not None:
        _parsed(connection)
    if variable is not None and not _VARIABLE.fullmatch(variable):
        # What was given may be the secret itself.
        raise InvalidArgument(
            "the option connectionEnv is the name of an environment variable (letters, digits and _) that holds the "
            "connection string, not the connection string: put that into a variable, and give its name"
        )
    first, last = (
        _number(given, "fromSequence", FIRST_NUMBER, 0, LAST_NUMBER),
        _number(given, "toSequence", LAST_NUMBER, 0, LAST_NUMBER),
    )
    if first > last:
        raise InvalidArgument(f"fromSequence is {first} and toSequence {last}: no number lies between them")
    return SourceOptions(
        connection=connection,
        connection_variable=variable,
        ca_path=given.get("ca") or None,
        backend=_one_of(given, "backend", BACKENDS),
        namespace_id=given.get("namespaceid") or None,
        entities=_entities(given),
        destination=given.get("entity") or None,
        owner=_owner(given.get("owner")),
        max_messages=_number(given, "maxMessages", DEFAULT_MAX_MESSAGES, 1),
        max_bytes=_number(given, "maxBytes", DEFAULT_MAX_BYTES, 1),
        partition_count=_number(given, "numPartitions", os.cpu_count() or 1, 1),
        from_sequence=first,
        to_sequence=last,
        fragments=_fragments(given),
        payload=_one_of(given, "payload", PAYLOADS),
        key_columns=_listed(given.get("keycolumns", "")),
        retry_for_s=float(_number(given, "retryFor", DEFAULT_RETRY_FOR_S, 0)),
    )


def require_entities(options: SourceOptions) -> None:
    if not options.entities:
        raise InvalidArgument(
            "which entities? Give the option entities: queues, or TOPIC/subscriptions/NAME, with commas between"
            + ("" if options.destination is None else "; you gave entity, which is for writing")
        )


def require_owner(options: SourceOptions) -> str:
    if options.owner is None:
        raise InvalidArgument(
            "a streaming read needs the option owner: a name of the query's own, under which its messages are "
            "reserved. Keep it for as long as the checkpoint, and never give it to two queries"
        )
    return options.owner


def check_stream(options: SourceOptions) -> None:
    """A stream consumes: it would not be seen that it took more than was meant."""
    require_entities(options)
    require_owner(options)
    if options.fragments or (options.from_sequence, options.to_sequence) != (FIRST_NUMBER, LAST_NUMBER):
        raise InvalidArgument(
            "a stream consumes all of its entities: the options fragments, fromSequence and toSequence are for tables "
            "(spark.read). Leave them out"
        )


def _parsed(connection: str) -> ConnectionString:
    try:
        return parse_connection_string(connection)
    except InvalidArgument:
        # Its own text could repeat a part of what was given.
        raise InvalidArgument(
            "this is no connection string: it has the form "
            "Endpoint=sb://HOST;SharedAccessKeyName=NAME;SharedAccessKey=KEY (`tandembus connection-string` prints one)"
        ) from None


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in NAMES} | set(_SPARKS_OWN)
    for name, value in given.items():
        if name.startswith(_ASYNCHRONOUS):
            if value.lower() != "false":
                raise InvalidArgument(
                    "asyncProgressTrackingEnabled cannot be used with servicebus: messages are settled when Spark has "
                    "written down that their batch is done, and it would not wait for that"
                )
        elif name not in known and not name.startswith(("spark.", "state", "__")):
            raise InvalidArgument(f"there is no option {name!r}; there are: {', '.join(NAMES)}")


def _one_of(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = given.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise InvalidArgument(f"the option {name} is one of {', '.join(choices)}, not {value!r}")
    return value


def _number(given: Mapping[str, str], name: str, default: int, lowest: int, highest: int = (1 << 63) - 1) -> int:
    text = given.get(name.lower())
    if text is None or not text.strip():
        return default
    try:
        value = int(text)
    except ValueError:
        raise InvalidArgument(f"the option {name} is a number, not {text!r}") from None
    if not lowest <= value <= highest:
        raise InvalidArgument(f"the option {name} is a number from {lowest} to {highest}, not {value}")
    return value


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _entities(given: Mapping[str, str]) -> tuple[str, ...]:
    name = given.get("subqueue", "").strip().lower()
    if name not in SUB_QUEUES:
        raise InvalidArgument(f"the option subQueue is deadLetter or transferDeadLetter, not {name!r}")
    found: dict[str, str] = {}
    for entity in _listed(given.get("entities", "")):
        found.setdefault(entity.strip("/").lower(), entity.strip("/"))  # upper and lower case are one to the service
    return tuple(entity + SUB_QUEUES[name] for entity in found.values())


def _fragments(given: Mapping[str, str]) -> tuple[int, ...]:
    texts = _listed(given.get("fragments", ""))
    if not all(text.isdigit() and int(text) < 1 << 16 for text in texts):
        raise InvalidArgument(f"the option fragments is a list of numbers such as 0,1,2, not {given['fragments']!r}")
    return tuple(int(text) for text in texts)


def _owner(text: str | None) -> str | None:
    if text is None or not text.strip():
        return None
    if len(text) > MAX_OWNER_LENGTH or not text.isprintable():
        raise InvalidArgument(f"the option owner is a name of at most {MAX_OWNER_LENGTH} printable characters")
    return text.strip()
