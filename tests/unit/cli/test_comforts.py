"""What makes the command line pleasant: which namespace is meant, what a mistyped name was meant to be, tables."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tandembus.cli import entities, main, target
from tandembus.cli.output import ProgressLine, Size, print_table, size_words
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.fixture(scope="module")
def namespace() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="contoso") as namespace:
        namespace.create_queue("orders")
        namespace.create_topic("events")
        yield namespace


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, port in (("tandembus-data", 1), ("a", 2), ("b", 3)):
        (tmp_path / name).mkdir()
        facts = {"name": name, "host": "localhost", "amqp_port": port, "amqps_port": None, "http_port": port}
        (tmp_path / name / "namespace.json").write_text(json.dumps(facts))
        (tmp_path / name / "key").write_text("secret\n")
    return tmp_path


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("options", "env", "reached"),
    [
        ([], {}, "localhost:1"),
        ([], {"TANDEMBUS_DATA": "a"}, "localhost:2"),
        (["--data", "b"], {"TANDEMBUS_DATA": "a"}, "localhost:3"),
        ([], {"TANDEMBUS_DATA": "a", "TANDEMBUS_CONNECTION_STRING": NOBODY}, "127.0.0.1:9"),
        (["--data", "b"], {"TANDEMBUS_CONNECTION_STRING": NOBODY}, "localhost:3"),
        (["--connection-string", NOBODY], {"TANDEMBUS_DATA": "a"}, "127.0.0.1:9"),
    ],
)
def test_an_option_counts_before_a_variable(options: list[str], env: dict[str, str], reached: str) -> None:
    for command in (["peek", "orders"], ["queue", "list"], ["spark", "capture", "orders", "--output", "x"]):
        result = run(*command, *options, env={"TANDEMBUS_CONNECTION_STRING": "", "TANDEMBUS_DATA": "", **env})
        assert result.exit_code == 5
        assert reached in result.stderr


@pytest.mark.usefixtures("folders")
def test_a_namespace_is_named_once() -> None:
    result = run("peek", "orders", "--data", "a", "--connection-string", NOBODY)
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


@pytest.mark.usefixtures("folders")
def test_both_namespaces_of_a_pair_have_a_folder() -> None:
    assert "cannot be its own secondary" in run("pair", "status", "--data", "a", "--secondary-data", "a").stderr
    assert "no namespace in ./nowhere" not in run("pair", "status", "--secondary-data", "nowhere").stderr
    assert "(no namespace in nowhere)" in run("pair", "status", "--secondary-data", "nowhere").stderr


@covers("M9")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ["queue", "show", "ordres"],
            "There is no queue 'ordres'.\nTry:   Did you mean 'orders'? `tandembus queue list`",
        ),
        (["send", "Event", "x"], "There is no queue or topic 'Event'.\nTry:   Did you mean 'events'?"),
        (["subscription", "list", "evnts"], "There is no topic 'evnts'.\nTry:   Did you mean 'events'?"),
        (["peek", "evnts/subscriptions/a"], "There is no topic 'evnts'.\nTry:   Did you mean 'events'?"),
        (["topic", "delete", "orders"], "'orders' is a queue, and no topic.\nTry:   `tandembus queue show orders`"),
        (["queue", "show", "zzz"], "There is no queue 'zzz'.\nTry:   `tandembus queue list` shows what there is;"),
    ],
)
def test_a_mistyped_name_gets_the_right_one(namespace: EmbeddedNamespace, command: list[str], told: str) -> None:
    result = run(*command, "--connection-string", namespace.connection_string)
    assert result.exit_code == 3
    assert told in result.stderr


@covers("M9")
def test_what_was_created_is_one_line_and_what_is_listed_is_aligned(namespace: EmbeddedNamespace) -> None:
    where = ["--connection-string", namespace.connection_string]
    made = run("queue", "create", "bills", *where).stdout
    assert made == "created queue bills; `tandembus queue show bills` shows its settings\n"
    run("send", "bills", "x" * 2000, *where)
    assert run("queue", "list", *where).stdout == (
        "queue   status  active  dead-letter  scheduled     size\n"
        "bills   Active       1            0          0  2.0 KiB\n"
        "orders  Active       0            0          0      0 B\n"
    )
    assert run("dlq", "list", "bills", *where).stdout == "no dead letters\n"
    run("queue", "delete", "bills", "--yes", *where)


def test_a_list_that_is_watched_is_repeated(namespace: EmbeddedNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    def show(*arguments: object) -> None:
        shown.append(arguments)
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(entities, "show_entities", show)
    monkeypatch.setattr(target, "WATCHED_EVERY_S", 0)
    result = run("topic", "list", "--watch", "--connection-string", namespace.connection_string)
    assert (result.exit_code, len(shown)) == (130, 3)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(shell: str) -> None:
    assert "_TANDEMBUS_COMPLETE" in run("completion", shell).stdout
    variables = {
        "_TANDEMBUS_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "tandembus queue cre",
        "COMP_CWORD": "cre" if shell == "fish" else "2",
    }
    command = [sys.executable, "-c", "from tandembus.cli import main; main(prog_name='tandembus')"]
    found = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert "create" in found.stdout


def test_the_manual_has_every_command_and_is_well_formed() -> None:
    text = run("man").stdout
    assert text.startswith(".TH TANDEMBUS 1")
    for line in (
        ".SH TANDEMBUS QUEUE CREATE",
        ".B \\-\\-max\\-delivery\\-count INTEGER",
        ".SH TANDEMBUS SPARK CAPTURE",
    ):
        assert line in text
    requests = {line.split(" ")[0] for line in text.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".B", ".PP", ".TP", ".nf", ".fi"}


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (2**40 * 5000, "5,000.0 TiB")],
)
def test_sizes_have_units(size: int, words: str) -> None:
    assert size_words(size) == words


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["a", 1, "at least 5", None, True], ["語", 1000, 12, Size(2048), False]]
    print_table(["name", "n", "limited", "size", "is it"], rows)
    assert capsys.readouterr().out == (
        "name      n     limited     size  is it\n"
        "a         1  at least 5        -  yes\n"
        "語    1,000          12  2.0 KiB  no\n"
    )  # fmt: skip


PEOPLE = """
import sys
from tandembus.cli.output import ProgressLine, print_table, say
say(("green", "green"), " plain")
print_table(["message id", "body"], [["i" * 40, "b" * 70]])
with ProgressLine("sending", 10) as progress:
    progress.advance(5)
"""


def on_a_terminal(env: dict[str, str]) -> str:
    """Runs a program on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PEOPLE]
    subprocess.run(command, stdout=theirs, stderr=theirs, check=True, env={**os.environ, "COLUMNS": "80", **env})
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        return terminal.read1(100_000).decode().replace("\r\n", "\n")


def test_people_get_colours_lines_that_fit_and_progress() -> None:
    shown = on_a_terminal({})
    assert "\x1b[32mgreen\x1b[0m plain\n" in shown
    assert "i" * 23 + "…  " + "b" * 54 + "\n" + " " * 26 + "b" * 16 + "\n" in shown
    assert shown.endswith("\r\x1b[Ksending 5 of 10 (50 %)\r\x1b[K")
    assert "\x1b[32m" not in on_a_terminal({"NO_COLOR": "1"})


def test_progress_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("sending", 10) as progress:
        progress.advance(5)
    assert capsys.readouterr().err == ""
