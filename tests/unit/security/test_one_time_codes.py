"""Codes that sign in once."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tandembus.security.one_time_codes import CODE_LIFETIME_S, FOLDER, OneTimeCodes
from tests.covers import covers

NOW = 1_700_000_000.0


@covers("B4")
def test_a_code_is_good_once(tmp_path: Path) -> None:
    codes = OneTimeCodes(tmp_path)
    code = codes.make(NOW)
    assert codes.redeem(code, NOW + 1.0)
    assert not codes.redeem(code, NOW + 1.0)


@covers("B4")
def test_of_many_who_redeem_a_code_at_once_one_succeeds(tmp_path: Path) -> None:
    for _ in range(50):
        code = OneTimeCodes(tmp_path).make(NOW)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: OneTimeCodes(tmp_path).redeem(code, NOW), range(8)))  # noqa: B023
        assert sum(answers) == 1


@covers("B4")
def test_a_code_that_is_too_old_is_worth_nothing_and_is_cleared_away(tmp_path: Path) -> None:
    codes = OneTimeCodes(tmp_path)
    old, unused, good = codes.make(NOW), codes.make(NOW), codes.make(NOW + 1.0)
    assert not codes.redeem(old, NOW + CODE_LIFETIME_S)
    assert codes.redeem(good, NOW + CODE_LIFETIME_S)
    codes.make(NOW + CODE_LIFETIME_S)
    assert not codes.redeem(unused, NOW)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


@covers("B4")
def test_the_folder_holds_no_code_and_is_its_owner_s_alone(tmp_path: Path) -> None:
    code = OneTimeCodes(tmp_path).make(NOW)
    (file,) = (tmp_path / FOLDER).iterdir()
    assert code not in f"{file.name}{file.read_text()}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@covers("B4")
@pytest.mark.parametrize(
    "code", ["", "a", "A" * 42, "A" * 43, "A" * 44, "../" * 14 + "a", "\n" * 43, "é" * 43, "\ud800"]
)
def test_a_guess_is_no_code_and_touches_nothing(tmp_path: Path, code: str) -> None:
    codes = OneTimeCodes(tmp_path)
    assert not codes.redeem(code, NOW)
    codes.make(NOW)
    (tmp_path / FOLDER / "half").write_text("nonsense")
    assert not codes.redeem(code, NOW)
