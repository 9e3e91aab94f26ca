"""What the first start makes is there after a power loss, from the moment at which the namespace is ready."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tandembus.config import EMULATOR_KEY, ServeSettings
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.node.launching import Launch
from tandembus.node.wiring import NamespaceNode
from tandembus.security.key_file import KEY_FILE, ensure_key, write_private
from tandembus.security.sas import ROOT_POLICY
from tandembus.store.audit_files import AuditFiles
from tandembus.store.messaging_store import AuditPage
from tests.covers import covers

NOT_NEEDED = {"lock.mdb", "store.lock", "ballast", "run"}
"""Made again when they are missing."""
SYNCED_BY_LMDB = {"data.mdb"}


class Disk:
    """What a power loss would leave: of a folder the names, of a file the content, as of its last fsync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names: dict[int, set[str]] = {}
        self._contents: dict[int, bytes] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}")
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = set(os.listdir(path))
        else:
            self._contents[inode] = path.read_bytes()

    def lost(self, folder: Path) -> list[str]:
        """What is not safe of this folder and all that is in it."""
        paths = [folder, *(one for one in folder.rglob("*") if not NOT_NEEDED & set(one.parts))]
        nameless = [one for one in paths if one.name not in self._names.get(one.parent.stat().st_ino, ())]
        files = [one for one in paths if one.is_file() and one.name not in SYNCED_BY_LMDB]
        written = [one for one in files if one.read_bytes() != self._contents.get(one.stat().st_ino, b"")]
        return sorted(str(one.relative_to(folder.parent)) for one in {*nameless, *written})


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@covers("F2")
async def test_a_namespace_is_ready_when_all_its_new_files_are_durable(disk: Disk, tmp_path: Path) -> None:
    data = tmp_path / "above" / "data"
    node = NamespaceNode(ServeSettings(data=data, amqp_port=0, http_port=0, amqps_port=0, stores=2, audit=True))
    await node.start()
    made, lost = {str(one.relative_to(data)) for one in data.rglob("*")}, disk.lost(data.parent)
    await node.stop()
    assert {"key", "namespace.json", "stores", "catalog", "tls", "meter", "audit/store-0", "audit/store-1"} <= made
    assert lost == []


@covers("F2")
def test_the_key_by_which_processes_know_each_other_is_durable_before_any_is_started(
    disk: Disk, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    Launch(ServeSettings(data=data, brokers=2))
    assert (data / "install.key").exists()
    assert disk.lost(data) == []


@covers("F2")
def test_the_root_key_is_durable_before_anybody_is_shown_it(disk: Disk, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert ensure_key(data)
    assert disk.lost(data) == []


@covers("F2")
def test_the_first_file_of_an_audit_is_durable_with_its_folders(disk: Disk, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    AuditFiles(audit / "store-0", "shop", 1_000, 2).append(bytes(16), [AuditPage(1, 1, 0, b"")])
    assert disk.lost(audit) == []


@covers("M15", "F16")
async def test_short_keys_that_are_stored_stay_good_and_are_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServeSettings(data=tmp_path / "data", amqp_port=0, http_port=0, amqps_port=None)
    rule = AuthorizationRule("brief", "short", "shorter", frozenset({"Send"}))
    node = NamespaceNode(settings)
    await node.start()
    await node.namespace.create_queue(QueueDescription("orders", authorization_rules=(rule,)))
    await node.namespace.administration.put_policy(rule)
    await node.stop()
    assert "less than 16 characters" not in caplog.text
    write_private(settings.data / KEY_FILE, b"tiny\n")
    node = NamespaceNode(settings)
    await node.start()
    assert "SharedAccessKey=tiny;" in node.connection_string
    await node.stop()
    (told,) = [record for record in caplog.records if "less than 16 characters" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert f"{ROOT_POLICY}, brief, brief of orders" in told.getMessage()
    assert "short" not in told.getMessage()


@covers("M15", "F16")
@pytest.mark.parametrize("is_emulator", [True, False])
async def test_the_emulators_key_is_replaced_where_it_is_not_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_emulator: bool
) -> None:
    data = tmp_path / "data"
    ensure_key(data, EMULATOR_KEY, accepts_emulator_key=True)
    config = tmp_path / "Config.json" if is_emulator else None
    node = NamespaceNode(ServeSettings(data=data, amqp_port=0, http_port=0, amqps_port=None, emulator_config=config))
    await node.start()
    await node.stop()
    assert (f"SharedAccessKey={EMULATOR_KEY};" in node.connection_string) is is_emulator
    assert "less than 16 characters" not in caplog.text
