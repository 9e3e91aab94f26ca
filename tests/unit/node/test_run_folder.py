"""Where the processes of a namespace meet."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.node.run_folder import RunFolder, ensure_install_key


def test_sockets_lie_in_the_data_folder_where_only_the_owner_can_look(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "data")
    assert run.path == tmp_path / "data" / "run"
    assert run.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_could_look_into_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    assert RunFolder(tmp_path).path.stat().st_mode & 0o777 == 0o700


def test_a_data_folder_with_a_long_path_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(tempfile.mkdtemp())
    monkeypatch.setattr("tempfile.tempdir", str(short))
    data = tmp_path / ("long" * 40)
    run = RunFolder(data)
    assert run.path.parent == short
    assert RunFolder(data).path == run.path, "every process finds the same one"
    assert RunFolder(tmp_path / ("long" * 41)).path != run.path
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(run.broker_socket(63)))
    shutil.rmtree(short)


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "run").symlink_to(theirs)
    with pytest.raises(StoreUnavailable, match="somebody else"):
        RunFolder(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        RunFolder(tmp_path / "data")


def test_the_install_key_is_made_once_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    key = ensure_install_key(tmp_path)
    assert len(key) == 32
    file = tmp_path / "install.key"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert ensure_install_key(tmp_path) == key
    assert file.stat().st_mode & 0o777 == 0o600
    assert ensure_install_key(tmp_path / "other") != key


@pytest.mark.parametrize(
    "content", [b"", b"abcd\n", b"\xff" * 64, b"ab" * 31], ids=["empty", "short", "no text", "31 bytes"]
)
def test_a_file_that_holds_no_key_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "install.key").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"install\.key"):
        ensure_install_key(tmp_path)
