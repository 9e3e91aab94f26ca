"""Writes `tandembus/pairing/sync` from the asyncio modules of `tandembus/pairing`, word by word.

    python tools/generate_sync.py            # writes
    python tools/generate_sync.py --check    # exit code 1 if what is there differs

What is written once, on the seam `pairing/runtime.py`, becomes blocking by leaving out `async` and `await` and by
taking the blocking classes of the SDK; `pairing/sync/runtime.py`, the other side of the seam, is written by hand.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path
from typing import Final

PAIRING: Final = Path(__file__).parents[1] / "src" / "tandembus" / "pairing"
MODULES: Final = (
    "backlog_queues",
    "backlog_sender",
    "closing",
    "links",
    "options",
    "pair",
    "paired_client",
    "ping",
    "primary_entity",
    "sdk_link",
    "sdk_ports",
    "sender",
    "syphon",
    "syphon_hands",
    "syphon_host",
    "syphon_lanes",
    "syphon_ports",
    "syphon_queue",
    "syphon_sending",
    "syphon_tokens",
)
"""Those with a blocking twin. The others do not wait, and serve both."""
NAMES: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "do_work_async": "do_work"}
HEADER: Final = "# Generated from tandembus/pairing/{module}.py by tools/generate_sync.py: change that, not this.\n"
OWN_MODULE: Final = re.compile(rf"\btandembus\.pairing\.({'|'.join((*MODULES, 'runtime'))})\b")
SDK_MODULE: Final = re.compile(r"\bazure\.servicebus\.aio\b")
COROUTINE: Final = re.compile(r"Coroutine\[Any, Any, (\w+)\]")


def blocking(source: str, module: str) -> str:
    """The blocking twin of a module."""
    text = _without_waiting(source)
    text = OWN_MODULE.sub(r"tandembus.pairing.sync.\1", text)
    text = SDK_MODULE.sub("azure.servicebus", text)
    text = COROUTINE.sub(r"\1", text)
    return HEADER.format(module=module) + _without_unused_names(text)


def _without_waiting(source: str) -> str:
    """Tokens, not text: a docstring may speak of `await`."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type != tokenize.NAME:
            continue
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        line = lines[row]
        if token.string in ("async", "await"):
            lines[row] = line[:start] + line[end:].removeprefix(" ")
        elif token.string in NAMES:
            lines[row] = line[:start] + NAMES[token.string] + line[end:]
    return "".join(lines)


def _without_unused_names(text: str) -> str:
    """Names that were imported for the types of coroutines only."""
    for name in ("Coroutine", "Any"):
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"^(from \S+ import (?:.*, )?){name}(?:, |$)", r"\1", text, flags=re.MULTILINE)
            text = re.sub(r"^(from \S+ import .*), $", r"\1", text, flags=re.MULTILINE)
    return text


def twins() -> dict[Path, str]:
    """Every generated file, and what must stand in it."""
    found = {}
    for module in MODULES:
        source = (PAIRING / f"{module}.py").read_text()
        found[PAIRING / "sync" / f"{module}.py"] = blocking(source, module)
    return found


def main(arguments: list[str]) -> int:
    changed = [path for path, text in twins().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in changed:
            print(f"{path.relative_to(PAIRING)} is not what the tool writes", file=sys.stderr)
        return 1 if changed else 0
    for path in changed:
        path.write_text(twins()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
