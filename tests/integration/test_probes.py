"""What those learn who keep namespaces running: Kubernetes over HTTP, systemd on its socket."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from tandembus.config import load_settings
from tandembus.front_end.http.server import HEALTH_PATHS
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "systemd/tandembus.service"
IN_SEVERAL_PROCESSES = ("--brokers", "2", "--front-ends", "2")
CONNECTIONS = 12
"""So many that it would take bad luck for a front end to have none of them."""


def probe(running: RunningNamespace, name: str) -> set[int]:
    answers = set()
    for _ in range(CONNECTIONS):
        try:
            with urllib.request.urlopen(f"{running.http_url}/health/{name}", timeout=20) as answer:
                answers.add(answer.status)
        except urllib.error.HTTPError as error:
            answers.add(error.code)
    return answers


@covers("M13")
@pytest.mark.parametrize("options", [("--stores", "2"), IN_SEVERAL_PROCESSES])
@pytest.mark.parametrize(("damaged", "ready"), [((1,), 200), ((0, 1), 503)])
def test_traffic_is_wanted_as_long_as_one_store_is_served_and_no_restart_for_those_that_are_not(
    data_folder: Path, options: Sequence[str], damaged: Sequence[int], ready: int
) -> None:
    with serving(data_folder, *options):
        pass
    for store in damaged:
        os.truncate(data_folder / "stores" / str(store) / "data.mdb", 5_000)
    with serving(data_folder, *options) as running:
        assert [probe(running, name) for name in ("live", "startup")] == [{200}, {200}]
        while probe(running, "ready") != {ready}:
            """On a busy machine front ends may connect to the stores a moment later; else the test times out."""


@covers("M13")
@pytest.mark.parametrize(("options", "is_abstract"), [((), False), (IN_SEVERAL_PROCESSES, True)])
def test_systemd_hears_that_a_namespace_is_ready_lives_and_stops(
    data_folder: Path, tmp_path: Path, options: Sequence[str], is_abstract: bool
) -> None:
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if is_abstract else name)
        systemd.settimeout(60)
        environment = {"NOTIFY_SOCKET": f"@{name}" if is_abstract else name, "WATCHDOG_USEC": "200000"}
        with serving(data_folder, *options, environment=environment):
            assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        told = {systemd.recv(100)}
        while b"STOPPING=1" not in told:
            told.add(systemd.recv(100))
        assert told <= {b"WATCHDOG=1", b"STOPPING=1"}


@covers("M13")
def test_a_namespace_serves_when_nobody_listens_to_what_it_tells(data_folder: Path, tmp_path: Path) -> None:
    with serving(data_folder, environment={"NOTIFY_SOCKET": f"{tmp_path}/nobody", "WATCHDOG_USEC": "soon"}) as running:
        assert probe(running, "ready") == {200}


@covers("M13")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_the_unit_is_one_that_systemd_takes_and_allows_little(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/tandembus serve", "/bin/true serve"))
    for check in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20", "--no-pager"]):
        done = subprocess.run(
            ["systemd-analyze", *check, str(unit)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout
    assert {"Type=notify", "WatchdogSec=30"} <= set(UNIT.read_text().splitlines())


@covers("M13")
def test_kubernetes_takes_the_manifests_and_they_ask_for_routes_and_settings_that_there_are() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing")
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    manifests = {one["kind"]: one for one in yaml.safe_load_all((PACKAGING / "kubernetes/tandembus.yaml").read_text())}
    for manifest in manifests.values():
        schemas.validate(manifest, "1.29", strict=True)
    assert set(manifests) == {"Secret", "Service", "PodDisruptionBudget", "StatefulSet"}
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is container["securityContext"]["readOnlyRootFilesystem"] is True
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert probes == {f"/{path}" for path in HEALTH_PATHS - {"health"}}
    settings = load_settings(
        None, {one["name"]: one.get("value", "a-key-of-22-characters") for one in container["env"]}
    )
    assert (settings.host, settings.data) == ("0.0.0.0", Path("/var/lib/tandembus/data"))
    open_ports = {settings.amqp_port, settings.amqps_port, settings.http_port}
    assert {one["containerPort"] for one in container["ports"]} == open_ports
    assert {one["port"] for one in manifests["Service"]["spec"]["ports"]} == open_ports
