"""What a test expects of a finding."""

from __future__ import annotations

from collections.abc import Iterable

from tandembus.cli.diagnosis.finding import Finding, Level


def assert_told(finding: Finding, level: Level, subject: str, text: str, advice: str) -> None:
    """Texts and advice are compared in part: what matters of them."""
    assert (finding.level, finding.subject) == (level, subject), finding
    assert text in finding.text
    assert advice in finding.advice


def assert_ok(finding: Finding, subject: str, text: str = "") -> None:
    assert (finding.level, finding.subject, finding.advice) == (Level.OK, subject, ""), finding
    assert text in finding.text


def about(subject: str, findings: Iterable[Finding]) -> Finding:
    """The only one of this subject."""
    (finding,) = [one for one in findings if one.subject == subject]
    return finding
