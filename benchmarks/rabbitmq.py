"""RabbitMQ as a process of our own: its ports, folders, node name and cookie are nobody else's.

Uses Debian's package as it is, with its AMQP 1.0 plugin, but not its wrapper, which switches to a user of the
system. Everything listens on the loopback address only.
"""

import os
import secrets
import subprocess
import time
from pathlib import Path

from benchmarks.load_client import Target
from benchmarks.processes import accepts_connections, free_port, stop, wait_until

INSTALLATIONS = Path("/usr/lib/rabbitmq/lib")
START_TIMEOUT_S = 120.0

DECLARE = """
{{resource, V, queue, N}} = {{resource, <<"/">>, queue, <<"{name}">>}},
rabbit_amqqueue:declare({{resource, V, queue, N}}, true, false, {arguments}, none, <<"guest">>).
"""
QUEUE_TYPES = {
    "quorum": '[{<<"x-queue-type">>, longstr, <<"quorum">>}]',
    "classic": '[{<<"x-queue-type">>, longstr, <<"classic">>}, {<<"x-queue-version">>, long, 2}]',
}


def find_installation() -> Path | None:
    """The folder with RabbitMQ's own scripts, if Debian's package is installed."""
    return next(iter(sorted(INSTALLATIONS.glob("rabbitmq_server-*/sbin"))), None)


class RabbitMq:
    """A RabbitMQ node with one quorum queue and one classic queue (version 2)."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self._scripts = scripts
        self._folder = folder
        self._port = free_port()
        self._environment = self._make_environment()
        self._epmd: subprocess.Popen[str] | None = None
        self._server: subprocess.Popen[str] | None = None

    @property
    def version(self) -> str:
        return self._scripts.parent.name.partition("-")[2]

    def start(self) -> float:
        """Starts the node and makes its queues; returns how many seconds passed until it took connections."""
        # Erlang would start its port mapper as a daemon that outlives the node: this one ends with us.
        self._epmd = self._spawn("epmd", "-address", "127.0.0.1", "-port", self._environment["ERL_EPMD_PORT"])
        wait_until(lambda: accepts_connections(int(self._environment["ERL_EPMD_PORT"])), "epmd", START_TIMEOUT_S)
        began_at = time.monotonic()
        self._server = self._spawn(str(self._scripts / "rabbitmq-server"))
        wait_until(lambda: accepts_connections(self._port), "RabbitMQ", START_TIMEOUT_S)
        took_s = time.monotonic() - began_at
        for name, arguments in QUEUE_TYPES.items():
            self._control("eval", DECLARE.format(name=name, arguments=arguments))
        return took_s

    def target(self, queue: str) -> Target:
        return Target(port=self._port, address=f"/amq/queue/{queue}", user="guest", password="guest")

    def stop(self) -> None:
        for process in (self._server, self._epmd):
            if process is not None:
                stop(process)

    def _spawn(self, *command: str) -> "subprocess.Popen[str]":
        log = (self._folder / "output.log").open("a")
        with log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, text=True, start_new_session=True
            )

    def _control(self, *arguments: str) -> None:
        command = [str(self._scripts / "rabbitmqctl"), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}")

    def _make_environment(self) -> dict[str, str]:
        folder = self._folder
        folder.mkdir(parents=True)
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\n")
        (folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        cookie = folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o600)
        return {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"tandembus-bench-{os.getpid()}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
        }
