"""A build knows what it was made from."""

from pathlib import Path

from tandembus import build


def package(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_an_edit_of_any_module_changes_the_hash(tmp_path: Path) -> None:
    before = build.hash_of_sources(package(tmp_path, message="a = 1\n", cold="b = 2\n"))
    after = build.hash_of_sources(package(tmp_path, cold="b = 3\n"))
    assert before != after


def test_text_moved_from_one_module_to_another_changes_the_hash(tmp_path: Path) -> None:
    before = build.hash_of_sources(package(tmp_path, one="ab", two="c"))
    after = build.hash_of_sources(package(tmp_path, one="a", two="bc"))
    assert before != after


def test_what_the_build_leaves_behind_does_not_change_the_hash(tmp_path: Path) -> None:
    before = build.hash_of_sources(package(tmp_path, message="a = 1\n"))
    (tmp_path / f"{build.BUILD_INFO}.py").write_text(build.build_info(["tandembus.message"], before))
    assert build.hash_of_sources(tmp_path) == before


def test_the_tested_package_describes_itself() -> None:
    current = build.current()
    assert current.sources_fit
    assert build.describe() == current.kind
    assert current.kind in {"compiled", "interpreted"}
