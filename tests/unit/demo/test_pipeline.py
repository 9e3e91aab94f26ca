"""The part of the demonstration that needs Spark, without it."""

from pathlib import Path

from rich.console import Console

from demo.pipeline import run_pipeline


def test_without_spark_the_demonstration_says_what_to_install_and_goes_on(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    assert run_pipeline([], tmp_path, tmp_path / "report.html", console, package="no_such_package")
    assert "pip install 'tandembus[spark]'" in console.export_text()
