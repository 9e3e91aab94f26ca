"""The pytest plugin in sessions of its own, as other people's suites have it; and the documentation's examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tandembus import build
from tandembus.testing import EmbeddedNamespace
from tandembus.testing import pytest_plugin as plugin
from tests.covers import covers

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
PLUGIN = "tandembus.testing.pytest_plugin"


class Suite:
    """A folder with somebody's tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *options: str, plugins: tuple[str, ...] = (PLUGIN,)) -> subprocess.CompletedProcess[str]:
        """Only the named plugins: whether this package is installed here must not matter."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [part for plugin in plugins for part in ("-p", plugin)]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(build.FOLDER.parent)}
        return subprocess.run(
            [*command, *options], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


TWO_TESTS = """
ports = []

def test_one(tandembus_namespace, tandembus_connection_string):
    tandembus_namespace.create_queue("orders")
    assert tandembus_connection_string == tandembus_namespace.connection_string
    tandembus_namespace.clock.advance(86400)
    ports.append(tandembus_namespace.port)

def test_two(tandembus_namespace):
    tandembus_namespace.create_queue("orders")
    ports.append(tandembus_namespace.port)

def test_how_many_there_were(request):
    assert len(set(ports)) == NUMBER
"""


@covers("B6")
@pytest.mark.parametrize(
    ("options", "ini", "number"),
    [
        ((), "", 2),
        (("--tandembus-scope=session",), "", 1),
        ((), "tandembus_scope = session\ntandembus_store = lmdb\n", 1),
        (("--tandembus-scope=function",), "tandembus_scope = session\n", 2),
    ],
)
def test_each_test_finds_an_empty_namespace(suite: Suite, options: tuple[str, ...], ini: str, number: int) -> None:
    suite.write("test_orders.py", TWO_TESTS.replace("NUMBER", str(number)))
    suite.write("pytest.ini", f"[pytest]\n{ini}")
    run = suite.run(*options)
    assert "3 passed" in run.stdout, run.stdout + run.stderr


@covers("B6", "B2")
@pytest.mark.parametrize("scope", ["function", "session"])
def test_entities_of_a_config_file_are_there_in_each_test(suite: Suite, scope: str) -> None:
    namespace = {"Name": "sbemulatorns", "Queues": [{"Name": "queue.1"}], "Topics": []}
    config = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}
    suite.write("Config.json", json.dumps(config))
    suite.write("pytest.ini", f"[pytest]\ntandembus_config = Config.json\ntandembus_scope = {scope}\n")
    test = 'def test_{}(tandembus_namespace):\n    assert tandembus_namespace.counts("queue.1").active == 0\n'
    suite.write("test_orders.py", test.format("one") + test.format("two"))
    run = suite.run()
    assert "2 passed" in run.stdout, run.stdout + run.stderr


@covers("B6")
@pytest.mark.parametrize("setting", ["tandembus_scope = module", "tandembus_store = disk"])
def test_a_wrong_setting_is_told_where_it_is_used_and_nowhere_else(suite: Suite, setting: str) -> None:
    suite.write("pytest.ini", f"[pytest]\n{setting}\n")
    suite.write("test_a.py", "def test_a(): pass\ndef test_b(tandembus_namespace): pass\n")
    run = suite.run()
    assert f"{setting.split(' ')[0]} must be" in run.stdout
    assert "1 passed, 1 error" in run.stdout


@covers("B6")
def test_a_suite_that_does_not_use_it_does_not_pay_for_it(suite: Suite) -> None:
    heavy = ("aiohttp", "lmdb", "cryptography", "tandembus.node", "tandembus.broker", "tandembus.testing.embedded")
    suite.write(
        "test_others.py",
        f"import sys\ndef test_others():\n    assert not [name for name in {heavy!r} if name in sys.modules]\n",
    )
    run = suite.run()
    assert "1 passed" in run.stdout, run.stdout + run.stderr


@covers("B6")
def test_the_examples_of_the_documentation_work(suite: Suite) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    scripts = [example for example in examples if "def test_" not in example]
    suites = [example for example in examples if "def test_" in example and "TandembusContainer" not in example]
    assert (len(suites), len(scripts)) == (4, 1)
    for number, example in enumerate(suites):
        suite.write(f"test_example_{number}.py", example)
    suite.write("pytest.ini", "[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    run = suite.run(plugins=(PLUGIN, "pytest_asyncio.plugin"))
    assert "4 passed" in run.stdout, run.stdout + run.stderr
    alone = subprocess.run([sys.executable, "-c", scripts[0]], capture_output=True, text=True, timeout=60)
    assert alone.stdout.startswith("Endpoint=sb://localhost:"), alone.stderr


@covers("B6")
def test_every_option_and_method_is_documented() -> None:
    text = DOCUMENT.read_text()
    names = [name for name in vars(EmbeddedNamespace) if not name.startswith("_") and name not in ("start", "stop")]
    fixtures = [name for name in vars(plugin) if name.startswith("tandembus_")]
    assert fixtures
    assert [name for name in (*names, *fixtures) if f"`{name}" not in text] == []
    assert "--tandembus-scope" in text


@covers("B6")
def test_a_conftest_can_load_the_plugin_where_it_is_not_installed(suite: Suite) -> None:
    suite.write("conftest.py", f'pytest_plugins = ["{PLUGIN}"]\n')
    suite.write("test_it.py", 'def test_it(tandembus_namespace):\n    tandembus_namespace.create_queue("orders")\n')
    outcome = suite.run(plugins=())
    assert "1 passed" in outcome.stdout, outcome.stdout
