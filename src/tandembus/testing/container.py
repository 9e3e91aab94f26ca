"""A namespace in a container, for suites on Testcontainers: needs `tandembus[testcontainers]` and Docker or Podman."""

from __future__ import annotations

import secrets

from tandembus.security.sas import ROOT_POLICY, make_connection_string

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ImportError as error:
    raise ImportError("TandembusContainer needs Testcontainers: pip install 'tandembus[testcontainers]'") from error

IMAGE = "tandembus/tandembus"
PORT = 5672


class TandembusContainer(DockerContainer):
    """An empty namespace with a random key, ready when `start` or the beginning of a `with` block returns."""

    def __init__(self, image: str = IMAGE, **settings: object) -> None:
        super().__init__(image, **settings)
        self._key = secrets.token_hex(32)
        self.with_env("TANDEMBUS_KEY", self._key).with_exposed_ports(PORT)
        self.waiting_for(LogMessageWaitStrategy("^ready sb://"))

    def connection_string(self) -> str:
        host, port = self.get_container_host_ip(), self.get_exposed_port(PORT)
        return make_connection_string(host, port, ROOT_POLICY, self._key, use_emulator=True)
