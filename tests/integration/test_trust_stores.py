"""`tandembus ca --install`, with the real tools on copies of the stores: each command runs in a mount namespace of its
own, where the copies are in the places of the machine's stores."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest

from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving

LOCAL = Path("/usr/local/share/ca-certificates")
HOOKS = Path("/etc/ca-certificates/update.d")
SHARED = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
JAVA = """
class Trust {
    public static void main(String[] arguments) throws Exception {
        new java.net.URL(arguments[0]).openStream().close();
    }
}
"""
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def lack() -> str:
    if shutil.which("unshare") is None:
        return "unshare is missing"
    tried = subprocess.run([*UNSHARE, "mount", "--bind", "/etc", "/mnt"], capture_output=True, text=True)
    return tried.stderr.strip()


LACK = lack()
needs_mounts = pytest.mark.skipif(bool(LACK), reason=f"stores in a mount namespace: {LACK}")
needs_debian = pytest.mark.skipif(
    not HOOKS.exists() or not shutil.which("openssl"),
    reason="needs Debian's ca-certificates and openssl",
)
needs_java = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")


class Machine:
    """The namespace's clients on it trust what its own copies of the stores hold."""

    def __init__(self, folder: Path, running: RunningNamespace) -> None:
        self.folder, self.running = folder, running
        self.url = f"https://localhost:{running.http_port}/health"
        self.environment = {name: value for name, value in os.environ.items() if name not in SHARED}
        self.environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
        self.mounts: list[str] = []

    def copy(self, store: Path, option: str = "rw") -> Path:
        copy = self.folder / store.name
        # What only root may read is no part of a store.
        subprocess.run(["cp", "--archive", store, copy], stderr=subprocess.DEVNULL)
        self.mounts.append(f"mount --bind -o {option} {copy} {store}")
        return copy

    def hook(self, script: str) -> None:
        """In place of the machine's own hooks, which change more than the copies."""
        hooks = self.folder / "hooks"
        hooks.mkdir()
        (hooks / "record").write_text(f"#!/bin/sh\n{script}\n")
        (hooks / "record").chmod(0o755)
        self.mounts.append(f"mount --bind {hooks} {HOOKS}")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        script = "\n".join(["set -e", *self.mounts, f"exec {shlex.join(map(str, command))}"])
        arguments = [*UNSHARE, "sh", "-c", script] if self.mounts else command
        return subprocess.run(
            arguments, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def ca(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "tandembus", "ca", "--data", self.running.data, *options)

    def change(self, *options: str) -> dict[str, Any]:
        done = self.ca(*options, "--json")
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def trusts(self, *client: str | Path) -> bool:
        """Whether this client connects; if not, the certificate must be why."""
        done = self.run(*client)
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "certifica" in said.lower(), said
        return done.returncode == 0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    with serving(tmp_path_factory.mktemp("trusted") / "data") as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, running: RunningNamespace) -> Machine:
    return Machine(tmp_path, running)


def check_both_ways(machine: Machine, store: str, *client: str | Path) -> None:
    assert not machine.trusts(*client)
    assert machine.ca("--install", store, "--dry-run").stdout.startswith("would install in ")
    assert not machine.trusts(*client)
    assert [machine.change("--install", store)["is_changed"] for _ in range(2)] == [True, False]
    assert machine.trusts(*client)
    assert [machine.change("--uninstall", store)["is_changed"] for _ in range(2)] == [True, False]
    assert not machine.trusts(*client)


@covers("M15")
def test_python_trusts_it(machine: Machine) -> None:
    shutil.copytree(Path(certifi.__file__).parent, machine.folder / "certifi")
    bundle = machine.folder / "certifi" / "cacert.pem"
    before = bundle.read_bytes()
    get = "import requests, sys; requests.get(sys.argv[1]).raise_for_status()"
    check_both_ways(machine, "certifi", sys.executable, "-c", get, machine.url)
    assert bundle.read_bytes() == before


@needs_mounts
@needs_debian
@covers("M15")
def test_the_system_trusts_it(machine: Machine) -> None:
    local = machine.copy(LOCAL)
    machine.copy(Path("/etc/ssl"))
    told = machine.folder / "told"
    machine.hook(f"cat >> {told}")
    before = sorted(local.iterdir())
    check = ("openssl", "s_client", "-connect", f"localhost:{machine.running.port}", "-verify_return_error", "-brief")
    check_both_ways(machine, "system", *check, "-verify_hostname", "localhost")
    assert sorted(local.iterdir()) == before
    added, removed = [line for line in told.read_text().splitlines() if "/tandembus-" in line]
    assert (added[0], removed) == ("+", f"-{added[1:]}")


@needs_mounts
@needs_java
@covers("M15")
def test_java_trusts_it(machine: Machine) -> None:
    home = Path(shutil.which("java") or "").resolve().parents[1]
    machine.copy((home / "lib" / "security" / "cacerts").resolve().parent)
    (machine.folder / "Trust.java").write_text(JAVA)
    check_both_ways(machine, "java", "java", "Trust.java", machine.url)


@needs_mounts
@pytest.mark.parametrize("store", [pytest.param("system", marks=needs_debian), pytest.param("java", marks=needs_java)])
@covers("M15")
def test_without_the_right_nothing_is_half_done(machine: Machine, store: str) -> None:
    local = machine.copy(LOCAL)
    machine.copy(Path("/etc/ssl"), "ro")
    machine.hook("cat > /dev/null")
    if store == "java" and not Path("/etc/ssl/certs/java/cacerts").exists():
        pytest.skip("Java's store is not below /etc/ssl")
    before = sorted(local.iterdir())
    done = machine.ca("--install", store)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be changed: Read-only file system" in done.stderr
    assert f"ca --install {store} --data {machine.running.data}" in done.stderr
    assert sorted(local.iterdir()) == before


@covers("M15")
def test_a_store_that_is_not_there_is_named(machine: Machine) -> None:
    machine.environment["JAVA_HOME"] = str(machine.folder)
    missing = machine.ca("--install", "java")
    assert (missing.returncode, "JAVA_HOME" in missing.stderr) == (3, True)
    missing = machine.ca("--install", "certifi", "--python", str(machine.folder / "python"))
    assert (missing.returncode, "--python names the Python" in missing.stderr) == (3, True)
    assert machine.ca("--install", "java", "--uninstall", "java").returncode == 2
    assert machine.ca("--dry-run").returncode == 2
