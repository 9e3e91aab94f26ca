"""The root key: made once, kept private, reused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tandembus.config import EMULATOR_KEY
from tandembus.errors import InvalidArgument, StoreDamaged
from tandembus.security.key_file import KEY_FILE, ensure_key, read_key, write_private
from tests.covers import covers


@covers("M15")
def test_a_key_is_made_at_the_first_start_and_reused_at_the_next(tmp_path: Path) -> None:
    first = ensure_key(tmp_path / "data")
    assert len(first) == 44
    assert ensure_key(tmp_path / "data") == first
    assert ensure_key(tmp_path / "other") != first


@covers("M15")
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    ensure_key(tmp_path)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


@covers("M15")
def test_a_key_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    key = ensure_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    assert read_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


@covers("M15")
def test_a_given_key_is_used_and_kept_for_the_next_start(tmp_path: Path) -> None:
    made = ensure_key(tmp_path)
    given = "given-0123456789"
    assert ensure_key(tmp_path, given) == given != made
    assert ensure_key(tmp_path) == read_key(tmp_path) == given


@covers("M15", "F16")
def test_a_new_key_that_is_short_is_refused_and_one_that_is_kept_already_is_good(tmp_path: Path) -> None:
    made = ensure_key(tmp_path)
    for short in ("given", "x" * 15, EMULATOR_KEY):
        with pytest.raises(InvalidArgument, match="at least 16 characters"):
            ensure_key(tmp_path, short)
        assert read_key(tmp_path) == made
    assert ensure_key(tmp_path, EMULATOR_KEY, accepts_emulator_key=True) == EMULATOR_KEY
    with pytest.raises(InvalidArgument):
        ensure_key(tmp_path, "given", accepts_emulator_key=True)
    assert ensure_key(tmp_path) == read_key(tmp_path) != EMULATOR_KEY
    write_private(tmp_path / KEY_FILE, b"given\n")
    assert ensure_key(tmp_path) == ensure_key(tmp_path, "given") == "given"


@covers("M15")
@pytest.mark.parametrize("content", ["", "\n", "two words", "semi;colon", "x" * 300, "kéy"])
def test_a_file_that_holds_no_key_is_refused_rather_than_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / KEY_FILE).write_text(content)
    with pytest.raises(StoreDamaged):
        ensure_key(tmp_path)
    assert (tmp_path / KEY_FILE).read_text() == content
