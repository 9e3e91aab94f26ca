"""The container image without a container engine: its entry point runs as process 1 in Linux namespaces of its own.
User, environment and the read-only root are those of the Dockerfile."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import tandembus
from tandembus.config import known_variables
from tests.covers import covers
from tests.integration.serving import STOPS_WITHIN_S, die_with_the_tests
from tests.integration.test_emulator_config import CONFIG

FOLDER = Path(__file__).parents[2] / "packaging" / "container"
DOCKERFILE = (FOLDER / "Dockerfile").read_text().replace("\\\n", "")
ADDRESS = "10.9.8.7"
"""Of the container on its network."""
OF_THE_EMULATOR = {"SQL_SERVER": "mssql", "MSSQL_SA_PASSWORD": "Secret-1", "SQL_WAIT_INTERVAL": "0"}

SET_UP = """
set -eu
root=$1 volume=$2 binds=$3 uid=$4 gid=$5
shift 5
mount --make-rprivate /
ip link set lo up
ip address add ADDRESS/32 dev lo
mount -t tmpfs -o mode=755 tmpfs "$root"
for each in $binds; do mkdir -p "$root$each" && mount --bind "$each" "$root$each"; done
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/opt/tandembus/bin" "$root/var/lib/tandembus"
mkdir -p "$root/ServiceBus_Emulator/ConfigFiles"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$volume" "$root/var/lib/tandembus"
cp bin/* "$root/opt/tandembus/bin"
if [ -e Config.json ]; then cp Config.json "$root/ServiceBus_Emulator/ConfigFiles"; fi
mount -o remount,ro "$root"
as_user="--reuid $uid --regid $gid --clear-groups --no-new-privs"
exec chroot "$root" setpriv $as_user --pdeathsig KILL env -i "$@"
""".replace("ADDRESS", ADDRESS)

EXCHANGE = """
import sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
text = "Endpoint=sb://ADDRESS;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
    try:
        client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("hello"))
    except ServiceBusAuthenticationError:
        sys.exit("refused")
    print(*client.get_queue_receiver("queue.1", max_wait_time=20).receive_messages())
""".replace("ADDRESS", ADDRESS)


def instruction(name: str) -> str:
    """The last one of this name in the Dockerfile."""
    found: list[str] = re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)
    return found[-1].strip()


USER = instruction("USER").split(":")


def lack() -> str:
    """Why there can be no such namespaces here; empty where there can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces of its own"
    missing = [tool for tool in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, text=True)
    return tried.stderr.strip()


class Container:
    """One run of the image, with a volume of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, has_config: bool) -> None:
        for name in ("root", "bin", "volume"):
            (folder / name).mkdir()
        (folder / "volume").chmod(0o1777)
        if has_config:
            (folder / "Config.json").write_text(json.dumps(CONFIG))
        self._write(folder / "bin" / "tandembus", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tandembus "$@"\n')
        self._write(folder / "bin" / "tandembus-entrypoint", (FOLDER / "entrypoint.sh").read_text())
        sources = str(Path(tandembus.__file__).parents[1])
        self.environment = [*shlex.split(instruction("ENV")), f"PYTHONPATH={sources}"]
        binds = {"/usr", "/bin", "/lib", "/lib64", "/etc", sys.prefix, sys.base_prefix, sources}
        there = " ".join(one for one in sorted(binds) if os.path.isdir(one))
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", SET_UP, "sh"]
        command += [str(folder / "root"), str(folder / "volume"), there, *USER]
        command += [f"--chdir={instruction('WORKDIR')}", *self.environment]
        command += [f"{name}={value}" for name, value in environment.items()]
        command += json.loads(instruction("ENTRYPOINT"))
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_the_tests,
        )
        self.log: list[str] = []

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def until_told(self, text: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            if text in line:
                return
        raise AssertionError("".join(self.log))

    @property
    def pid(self) -> int:
        """Of its process 1, as it is seen from outside."""
        first = self._process.pid
        return int(Path(f"/proc/{first}/task/{first}/children").read_text())

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as `docker exec` does."""
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--root", "--wd"]
        inside += ["--setuid", USER[0], "--setgid", USER[1], "env", "-i", *self.environment]
        return subprocess.run([*inside, *command], capture_output=True, text=True)

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        assert self._process.stdout is not None
        self.log += self._process.stdout
        return self._process.wait(STOPS_WITHIN_S)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOPS_WITHIN_S)


LACK = lack()
needs_namespaces = pytest.mark.skipif(bool(LACK), reason=f"a container without an engine: {LACK}")


@needs_namespaces
@covers("B2", "M15")
def test_with_a_mounted_file_the_image_takes_the_emulators_place(tmp_path: Path) -> None:
    with Container(tmp_path, {**OF_THE_EMULATOR, "EMULATOR_HTTP_PORT": "5301"}, has_config=True) as container:
        container.until_told("Emulator Service is Successfully Up!")
        assert re.search(r"^Uid:\t65532\t65532\t", Path(f"/proc/{container.pid}/status").read_text(), re.MULTILINE)
        ask = (
            f"import urllib.request as u; print(u.urlopen('http://{ADDRESS}:5301/health', timeout=20).read().decode())"
        )
        assert json.loads(container.execute(sys.executable, "-c", ask).stdout) == {
            "status": "healthy",
            "message": "Service is healthy.",
        }
        exchanged = container.execute(sys.executable, "-c", EXCHANGE)
        assert exchanged.stdout == "hello\n", exchanged.stderr
        assert container.stop() == 0
    warnings = [line for line in container.log if "WARNING" in line]
    assert len(warnings) == 1
    assert "SAS_KEY_VALUE" in warnings[0]


@needs_namespaces
@covers("B2", "M15")
def test_otherwise_the_image_refuses_the_emulators_key_and_its_health_check_and_commands_work(tmp_path: Path) -> None:
    with Container(tmp_path, {}, has_config=False) as container:
        container.until_told("ready sb://localhost:5672/")
        healthy = container.execute("sh", "-c", instruction("HEALTHCHECK").partition("CMD ")[2])
        assert (healthy.returncode, healthy.stdout) == (0, "tandembus on localhost:5300 is ready\n")
        created = container.execute("tandembus", "queue", "create", "queue.1")
        assert created.returncode == 0, created.stderr
        assert "refused" in container.execute(sys.executable, "-c", EXCHANGE).stderr
        assert container.stop() == 0
    assert "Emulator" not in "".join(container.log)


@pytest.mark.parametrize(
    ("accepted", "arguments", "run"),
    [
        (None, [], ["serve"]),
        ("", [], ["serve"]),
        ("Y", [], ["serve", "--emulator", "--open-emulator-key"]),
        ("Y", ["--brokers", "2"], ["serve", "--emulator", "--open-emulator-key", "--brokers", "2"]),
        ("Y", ["serve", "--audit"], ["serve", "--emulator", "--open-emulator-key", "--audit"]),
        ("Y", ["queue", "list"], ["queue", "list"]),
        (None, ["--name", "two words"], ["serve", "--name", "two words"]),
    ],
)
@covers("M15")
def test_the_entry_point_opens_the_emulators_key_only_where_the_licence_is_accepted(
    tmp_path: Path, accepted: str | None, arguments: list[str], run: list[str]
) -> None:
    (tmp_path / "tandembus").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "tandembus").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"} | ({} if accepted is None else {"ACCEPT_EULA": accepted})
    told = subprocess.check_output([FOLDER / "entrypoint.sh", *arguments], env=environment, text=True)
    assert told.splitlines() == run


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml"])
def test_every_variable_of_the_image_is_a_setting(file: str) -> None:
    assert set(re.findall(r"\b(TANDEMBUS_\w+)[:=]", (FOLDER / file).read_text())) <= set(known_variables())
