"""Records the demonstration of `make demo`, without Spark, as docs/images/demo.svg: `make screenshots`.

The picture is an animation in CSS alone: all frames below each other, moved past a window of one frame's height. Each
line is stored once, however many frames show it.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

FILE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
COMMAND = (sys.executable, "-m", "demo", "--no-spark")
COLUMNS, ROWS = 104, 34
FRAME_S = 0.5
SPEED = 2.0
LAST_FRAME_S = 8.0
ONE_WRITE_S = 0.02
"""Output with shorter pauses belongs together: a frame never shows half of a refresh."""
CHARACTER, LINE, MARGIN = 8.0, 17, 12
FONTS = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
COLORS = ("#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#e6edf3")
_TOKEN = re.compile(r"\x1b\[(?P<count>[?\d;]*)(?P<command>[A-Za-z])|(?P<end>\n)|(?P<text>[^\x1b\r\n]+)|\r")


class Screen:
    """The lines that a program has written with rich: it moves up over them only to erase them."""

    def __init__(self) -> None:
        self._lines = [""]
        self._at = 0

    def write(self, output: str) -> None:
        for token in _TOKEN.finditer(output):
            if token["end"]:
                self._at += 1
                self._lines += [""] * (self._at + 1 - len(self._lines))
            elif token["command"] == "A":
                self._at -= int(token["count"] or 1)
            elif token["command"] == "K":
                self._lines[self._at] = ""
            elif token["text"] or token["command"] == "m":
                self._lines[self._at] += token[0]

    def shown(self) -> tuple[str, ...]:
        last = max((number for number, line in enumerate(self._lines) if line), default=0)
        return tuple(self._lines[: last + 1][-ROWS:])


def output_of(command: tuple[str, ...]) -> Iterator[tuple[float, str]]:
    """What the command writes to a terminal, and after how many seconds. Raises SystemExit if it fails."""
    began_at = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.environ.pop("COLORTERM", None)
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_open = True
    while is_open:
        select.select([terminal], [], [])
        at_s = time.monotonic() - began_at
        written = ""
        while is_open and select.select([terminal], [], [], ONE_WRITE_S)[0]:
            try:
                written += decoder.decode(os.read(terminal, 65_536))
            except OSError:  # how Linux reports that the program has ended
                is_open = False
        yield at_s, written
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit(f"the demonstration ended with {status}")


def film(output: Iterator[tuple[float, str]]) -> list[tuple[str, ...]]:
    """A frame for each moment from the first that shows something."""
    screen = Screen()
    frames: list[tuple[str, ...]] = []
    for at_s, written in output:
        frames += [screen.shown()] * (int(at_s / FRAME_S) - len(frames))
        screen.write(written)
    return [*(frame for frame in frames if any(frame)), screen.shown()]


def drawn(line: str, console: Console) -> str:
    """A line with its escape codes, as the content of a `text` element."""
    text = Text.from_ansi(line)
    text.rstrip()
    parts = []
    for segment in text.render(console):
        classes = _classes(segment.style or Style.null())
        content = escape(segment.text, quote=False)
        parts.append(f'<tspan class="{classes}">{content}</tspan>' if classes else content)
    return f'textLength="{text.cell_len * CHARACTER:g}">{"".join(parts)}</text>' if text.cell_len else ""


def _classes(style: Style) -> str:
    number = style.color.number if style.color is not None else None
    color = [f"c{number % 8}"] if number is not None else []
    return " ".join(color + ["b"] * bool(style.bold) + ["d"] * bool(style.dim))


def svg(frames: list[tuple[str, ...]]) -> str:
    console = Console(width=COLUMNS)
    lines = {line: drawn(line, console) for frame in frames for line in frame}
    names = {content: f"l{number}" for number, content in enumerate(filter(None, dict.fromkeys(lines.values())))}
    width, height = round(COLUMNS * CHARACTER), ROWS * LINE
    moving_s = (len(frames) - 1) * FRAME_S / SPEED
    total_s = moving_s + LAST_FRAME_S
    end = f"transform:translateY({-(len(frames) - 1) * height}px)"
    film = []
    for number, frame in enumerate(frames):
        uses = [
            f'<use href="#{names[lines[line]]}" y="{row * LINE}"/>' for row, line in enumerate(frame) if lines[line]
        ]
        film.append(f'<g transform="translate(0 {number * height})">{"".join(uses)}</g>')
    colors = "".join(f".c{number}{{fill:{color}}}" for number, color in enumerate(COLORS))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 2 * MARGIN} {height + 2 * MARGIN}">',
            "<title>make demo: the primary is killed under load, and every message is accounted for</title>",
            "<style>",
            f"text{{font:13px {FONTS};fill:#c9d1d9;white-space:pre}}",
            f"{colors}.b{{font-weight:bold}}.d{{opacity:.6}}",
            f"#film{{{end};animation:play {total_s:g}s infinite}}",
            f"@keyframes play{{0%{{transform:none;animation-timing-function:steps({len(frames) - 1},end)}}",
            f"{100 * moving_s / total_s:.2f}%,100%{{{end}}}}}",
            "@media(prefers-reduced-motion:reduce){#film{animation:none}}",
            "</style><defs>",
            *(f'<text id="{name}" y="13" {content}' for content, name in names.items()),
            '</defs><rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{width}" height="{height}"><g id="film">',
            *film,
            "</g></svg></svg>\n",
        )
    )


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    frames = film(output_of(COMMAND))
    file.write_text(svg(frames))
    print(f"{file}: {file.stat().st_size / 1024:.0f} KiB, {len(frames)} frames")


if __name__ == "__main__":
    main()
