"""The class for Testcontainers, as its documentation shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.covers import covers

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
IMAGE = "tandembus/tandembus"


def lack() -> str:
    """Why no container of the image can run here; empty where it can."""
    docker = pytest.importorskip("docker", reason="testcontainers is missing")
    try:
        docker.from_env().images.get(IMAGE)
    except docker.errors.ImageNotFound:
        return f"needs the image {IMAGE}, which packaging/container/Dockerfile builds"
    except docker.errors.DockerException as error:
        return f"needs Docker or Podman: {error}"
    return ""


@covers("B2", "B6")
def test_the_class_for_testcontainers_works_as_documented(tmp_path: Path) -> None:
    if reason := lack():
        pytest.skip(reason)
    (example,) = re.findall(r"```python\n([^`]*TandembusContainer.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "test_example.py").write_text(example)
    # The container that would clean up after a killed process is another image, which may not be here.
    environment = {**os.environ, "TESTCONTAINERS_RYUK_DISABLED": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 passed" in run.stdout, run.stdout + run.stderr


@covers("B6")
def test_without_testcontainers_the_import_names_the_extra() -> None:
    script = "import sys; sys.modules['testcontainers'] = None; import tandembus.testing.container"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert run.stderr.splitlines()[-1] == (
        "ImportError: TandembusContainer needs Testcontainers: pip install 'tandembus[testcontainers]'"
    )
