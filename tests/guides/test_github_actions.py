"""The recipe for GitHub Actions, its steps run as the runner runs them: one shell after the other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.covers import covers
from tests.guides.blocks import ROOT, blocks_of
from tests.guides.process import WITHIN_S
from tests.guides.story import PORTS, write_commands
from tests.integration.test_emulator_config import CONFIG
from tests.ports import free_ports

SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


@covers("B2")
def test_the_recipe_serves_a_namespace_to_the_steps_after_it(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (recipe,) = (block.text for block in blocks_of(ROOT / "docs" / "testing.md") if block.language == "yaml")
    assert len(recipe.splitlines()) == 5
    amqp, amqps, http, *_ = ports = free_ports(len(PORTS))
    (tmp_path / "bin").mkdir()
    write_commands(tmp_path / "bin", dict(zip(PORTS, ports, strict=True)))
    (tmp_path / "Config.json").write_text(json.dumps(CONFIG))
    variables = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GITHUB_ENV": str(tmp_path / "variables"),
        "TANDEMBUS_AMQP_PORT": str(amqp),
        "TANDEMBUS_AMQPS_PORT": str(amqps),
        "TANDEMBUS_HTTP_PORT": str(http),
    }
    steps: list[int] = []

    def run(step: str) -> None:
        process = subprocess.Popen([*SHELL, step], cwd=tmp_path, env=variables, start_new_session=True)
        steps.append(process.pid)
        assert process.wait(WITHIN_S) == 0

    try:
        for step in yaml.safe_load(recipe):
            run(step["run"].replace("5300", str(http)))
        name, _, value = (tmp_path / "variables").read_text().strip().partition("=")
        variables[name] = value
        run('cd /; tandembus send queue.1 hello --connection-string "$BUS"')
    finally:
        for group in steps:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                pass  # nothing of this step goes on
