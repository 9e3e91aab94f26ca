"""What the dashboard's scripts compute, without a browser around them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tandembus.front_end.http.static_files import FOLDER
from tandembus.security.sas import ROOT_POLICY
from tests.covers import covers

NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A copy that Node takes for modules, as browsers do."""
    shutil.copytree(FOLDER, tmp_path / "dashboard")
    (tmp_path / "dashboard" / "package.json").write_text('{"type": "module"}')
    return tmp_path / "dashboard"


def called(scripts: Path, script: str, name: str, *arguments: str) -> list[object]:
    """What a function of a script returns for each argument."""
    program = (
        f"import {{ {name} }} from {json.dumps(f'./{script}')};"
        f"console.log(JSON.stringify({json.dumps(arguments)}.map((one) => {name}(one))));"
    )
    assert NODE is not None
    command = [NODE, "--input-type=module", "-"]
    done = subprocess.run(command, cwd=scripts, check=True, capture_output=True, input=program, text=True, timeout=30)
    found: list[object] = json.loads(done.stdout)
    return found


@covers("B4")
def test_a_body_of_nothing_but_brackets_is_shown_as_text_and_not_indented(scripts: Path) -> None:
    """Indented, half a megabyte of them would be some gigabytes."""
    shallow, at_most, deep, huge = [f"{'[' * depth}{']' * depth}" for depth in (2, 100, 101, 100_000)]
    found = called(scripts, "pages/entity/body.js", "prettyJson", shallow, at_most, deep, huge, "no JSON")
    assert found[0] == "[\n  []\n]"
    assert isinstance(found[1], str)
    assert found[2:] == [None, None, None]


@covers("B4")
def test_json_is_put_in_lines_and_its_values_stay_as_they_are(scripts: Path) -> None:
    text = '{"n":9007199254740993,"n":[1,{}],"s":"a{,\\"b"}'
    (found,) = called(scripts, "pages/entity/body.js", "prettyJson", text)
    assert found == '{\n  "n": 9007199254740993,\n  "n": [\n    1,\n    {}\n  ],\n  "s": "a{,\\"b"\n}'


@covers("B4")
def test_who_signs_in_with_a_key_alone_means_the_namespaces_own(scripts: Path) -> None:
    whole = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b=;EntityPath=orders"
    moved = "SharedAccessKeyName=a;SharedAccessKey=b=; endpoint = sb://localhost"
    found = called(scripts, "pages/sign_in.js", "credentials", f" {whole}\n", moved, " dGhlIGtleQ== ")
    assert found == [
        {"connection_string": whole},
        {"connection_string": moved},
        {"key_name": ROOT_POLICY, "key": "dGhlIGtleQ=="},
    ]
