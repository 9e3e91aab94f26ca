"""Prints the functions that one send, one receive and one complete pass: `python -m tools.walk [--calls]`.

The broker runs interpreted, once in one process and once as a front end with two message brokers, and writes down every
function of `src/tandembus` that it enters. The client is the Python SDK in a process that is not traced. Each operation
is repeated; the walk consists of the functions that every repetition entered, in the order of their first call.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

SOURCES = Path(__file__).parent.parent / "src" / "tandembus"
TRACES = "TANDEMBUS_WALK_TRACES"
REPETITIONS = 5
SHAPES = {"in one process": (), "across processes": ("--brokers", "2")}


class Tracer:
    """Appends one line for each call to a file of the process: nanoseconds, file, function.

    The file is opened for every line, because forks of `serve` close the descriptors that they inherit.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            name = self._names.get(frame.f_code)
            if name is None:
                name = self._names[frame.f_code] = _name_of(frame.f_code)
            if name:
                with open(f"{self._folder}/{os.getpid()}.trace", "a") as file:
                    file.write(f"{time.monotonic_ns()} {name}\n")


def _name_of(code: CodeType) -> str:
    """Empty for code that is not a function of tandembus."""
    path = code.co_filename
    if not path.startswith(str(SOURCES)) or code.co_name == "<module>":
        return ""
    return f"{path.removeprefix(f'{SOURCES}/')} {code.co_qualname}"


@dataclass(frozen=True)
class Window:
    first_ns: int
    last_ns: int


def record(options: tuple[str, ...], folder: Path) -> dict[str, list[Window]]:
    """Starts a traced namespace and uses it; returns when each operation began and ended."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    from benchmarks.tandembus_node import Tandembus

    traces = folder / "traces"
    traces.mkdir()
    os.environ[TRACES] = str(traces)
    node = Tandembus(folder / "data", is_interpreted=True, options=options, under=(sys.executable, "-m", "tools.walk"))
    windows: dict[str, list[Window]] = {"send": [], "receive": [], "complete": []}
    node.start()
    try:
        node.create("queue", "q")
        with (
            ServiceBusClient.from_connection_string(node.connection_string) as client,
            client.get_queue_sender("q") as sender,
            client.get_queue_receiver("q") as receiver,
        ):
            for _ in range(REPETITIONS):
                began_ns = time.monotonic_ns()
                sender.send_messages(ServiceBusMessage("walk"))
                sent_ns = time.monotonic_ns()
                (message,) = receiver.receive_messages(max_message_count=1)
                received_ns = time.monotonic_ns()
                receiver.complete_message(message)
                windows["send"].append(Window(began_ns, sent_ns))
                windows["receive"].append(Window(sent_ns, received_ns))
                windows["complete"].append(Window(received_ns, time.monotonic_ns()))
    finally:
        node.stop()
    return windows


def walk(windows: list[Window], calls: list[tuple[int, str]]) -> dict[str, int]:
    """The functions that every window has, with how often the last one has them."""
    seen = [[name for at_ns, name in calls if each.first_ns <= at_ns <= each.last_ns] for each in windows]
    common = set.intersection(*map(set, seen))
    return {name: seen[-1].count(name) for name in seen[-1] if name in common}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", action="store_true", help="say how often each function is called")
    shows_calls = parser.parse_args().calls
    for shape, options in SHAPES.items():
        with tempfile.TemporaryDirectory() as name:
            windows = record(options, Path(name))
            lines = [
                line.split(" ", 1)
                for path in Path(name, "traces").iterdir()
                for line in path.open()
                if line.endswith("\n")
            ]
        calls = sorted((int(at_ns), called.strip()) for at_ns, called in lines)
        for operation, times in windows.items():
            functions = walk(times, calls)
            files = {each.split(" ")[0] for each in functions}
            print(f"\n{operation}, {shape}: {len(functions)} functions in {len(files)} files\n")
            for each, count in functions.items():
                file, function = each.split(" ", 1)
                print(f"  {file:45} {function}" + (f"  ({count})" if shows_calls else ""))


def serve_traced(arguments: list[str]) -> None:
    """What the traced process runs: the same command line, with every call written down."""
    from tandembus.cli import main as tandembus

    tracer = Tracer(Path(os.environ[TRACES]))
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    tandembus(arguments)


if __name__ == "__main__":
    if TRACES in os.environ:
        serve_traced(sys.argv[sys.argv.index("tandembus") + 1 :])
    else:
        main()
