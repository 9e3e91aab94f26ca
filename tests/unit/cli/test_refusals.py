"""Wrong usage is refused before anything is asked or made: `refusals.txt` has commands, each with its answer below."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tests.covers import covers

LINES = Path(__file__).with_name("refusals.txt").read_text().splitlines()
NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
NAMESPACES = {
    "TANDEMBUS_CONNECTION_STRING": NOBODY,
    "TANDEMBUS_PRIMARY": "Endpoint=sb://one.example;SharedAccessKeyName=x;SharedAccessKey=eA==",
    "TANDEMBUS_SECONDARY": "Endpoint=sb://other.example;SharedAccessKeyName=x;SharedAccessKey=eA==",
}
WITHOUT_JSON = ("serve", "up", "fly", "queu", "spark captur", "completion")


@covers("B3", "B4", "D3", "D6", "M9", "N11", "N12", "P1", "P8")
@pytest.mark.parametrize(("line", "answer"), list(zip(LINES[::2], LINES[1::2], strict=True)))
def test_a_command_that_makes_no_sense_is_refused(
    line: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("x")
    runner = CliRunner(env=NAMESPACES)
    result = runner.invoke(main, shlex.split(line))
    assert (result.exit_code, result.stdout) == (2, "")
    assert " ".join(result.stderr.partition("Error: ")[2].split()) == answer.strip()
    if not line.startswith(WITHOUT_JSON):
        error = json.loads(runner.invoke(main, [*shlex.split(line), "--json"]).stderr)["error"]
        assert (error["kind"], error["exit_code"], " ".join(error["message"].split())) == (
            "WrongUsage",
            2,
            answer.strip(),
        )
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]
