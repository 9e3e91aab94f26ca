"""Writes docs/sdks.md from the tests with SDKs: sdk_calls.py [--write].

Without --write it fails when the document is out of date. A test of `make test-sdks` says which public calls it
shows and on which kinds of entities it runs: `@Shows(calls = ..., on = ...)` in Java, `shows(t, "calls", kinds, ...)`
in Go, `shows!(name, "calls", [kinds], ...)` in Rust. Tests with Python and JavaScript have no marks: a call that
the text of a test makes is shown with `yes`. The script reads the tests without running them: it needs no SDK but
Python's.

A call that no test makes is listed where the SDK's calls are known: of Python from the package, of others from
`calls.txt` beside the tests, which follows the version of the SDK.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import azure.servicebus
from azure.servicebus.management import ServiceBusAdministrationClient

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "sdks.md"
TESTS = ROOT / "tests" / "sdk"
INTEGRATION = ROOT / "tests" / "integration"
KINDS = ("plain", "sessions", "partitioned")
BEGIN, END = "<!-- calls: written by tools/sdk_calls.py -->\n", "<!-- end of calls -->\n"


@dataclass(frozen=True)
class Test:
    """A test and its marks."""

    name: str
    calls: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Language:
    """Where the tests with one SDK are, and how their marks look."""

    title: str
    files: str
    mark: re.Pattern[str]
    name: str
    """The name of a test, from the groups of the mark and the file's `stem`."""

    def tests(self) -> list[Test]:
        paths = sorted(TESTS.glob(self.files))
        code = "".join(self.mark.sub("", other.read_text()) for path in paths[:1] for other in path.parent.glob("*.*"))
        found: list[Test] = []
        for path in paths:
            for match in self.mark.finditer(path.read_text()):
                calls = tuple(re.findall(r"[\w.:]*\w[.:]+\w+", match["calls"]))
                kinds = tuple(kind.lower() for kind in re.findall(r"\w+", match["kinds"]))
                if not calls or not kinds or not set(kinds) <= set(KINDS):
                    sys.exit(f"{path}: a mark cannot be read: {match[0]}")
                for call in calls:
                    if not re.search(rf"\b{re.split('[.:]', call)[-1]}\b", code):
                        sys.exit(f"{path}: a mark claims {call}, which is not called")
                found.append(Test(self.name.format(stem=path.stem, **match.groupdict()), calls, kinds))
        return found


JAVA_MARK = re.compile(
    r"@Shows\(\s*calls = \{(?P<calls>[^}]*)\},\s*on = \{(?P<kinds>[^}]*)\}\)\s*void (?P<method>\w+)\(Kind kind\)"
)
JAVA = Language(
    "Java: azure-messaging-servicebus",
    "java/src/test/java/tandembus/*Test.java",
    JAVA_MARK,
    "{stem}.{method}",
)
JMS = Language("JMS: qpid-jms", "java/src/test/java/tandembus/*Jms.java", JAVA_MARK, "{stem}.{method}")
SPRING = Language(
    "Spring Cloud Azure: spring-messaging-azure-servicebus",
    "java/src/test/java/tandembus/*Spring.java",
    JAVA_MARK,
    "{stem}.{method}",
)
GO = Language(
    "Go: azservicebus",
    "go/*_test.go",
    re.compile(
        r"func (?P<test>Test\w+)\(t \*testing\.T\) \{\s*shows\(t, \"(?P<calls>[^\"]*)\", on\((?P<kinds>[^)]*)\),"
    ),
    "{test}",
)
RUST = Language(
    "Rust: azservicebus",
    "rust/src/*.rs",
    re.compile(r"shows!\(\s*(?P<test>\w+),\s*\"(?P<calls>[^\"]*)\",\s*\[(?P<kinds>[^\]]*)\]"),
    "{stem}::{test}",
)
LANGUAGES = (JAVA, JMS, SPRING, GO, RUST)


PYTHON_CLASSES = (
    azure.servicebus.ServiceBusClient,
    azure.servicebus.ServiceBusSender,
    azure.servicebus.ServiceBusReceiver,
    azure.servicebus.ServiceBusSession,
    azure.servicebus.ServiceBusMessageBatch,
    azure.servicebus.AutoLockRenewer,
    ServiceBusAdministrationClient,
)
NAMED_BEFORE = {
    "AutoLockRenewer": "renewer",
    "ServiceBusAdministrationClient": r"(admin|AdministrationClient|client(?=\.\w+Rule))",
    "ServiceBusClient": "((?<!tration)client|sdk)",
    "ServiceBusRuleManager": "manager",
}
"""What stands before a call that several classes have; of other classes it is the name without `ServiceBus`."""
ON_SHAPES = re.compile(r"on_every_shape|on_shapes\(.*PARTITIONED")


def python_calls() -> list[str]:
    """Every public method of the SDK. Those of its asynchronous classes have the same names."""
    members = [(one.__name__, name) for one in PYTHON_CLASSES for name, _ in inspect.getmembers(one, inspect.isroutine)]
    return [f"{one}.{name}" for one, name in members if not name.startswith("_")]


def listed_calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def files_with(calls: Sequence[str], paths: Sequence[Path]) -> list[Test]:
    """Each file as one test, of the calls in it."""
    names = [call.partition(".")[2] for call in calls]
    patterns: dict[str, re.Pattern[str]] = {}
    for call in calls:
        owner, _, name = call.partition(".")
        before = NAMED_BEFORE.get(owner, owner.removeprefix("ServiceBus")) if names.count(name) > 1 else ""
        patterns[call] = re.compile(rf"{before}\.{name}\b", re.I)
    found: list[Test] = []
    for path in paths:
        text = path.read_text()
        made = tuple(call for call, pattern in patterns.items() if pattern.search(text))
        kinds = ["sessions" if "session" in path.stem else "plain"]
        if ON_SHAPES.search(text) or (path.suffix == ".mjs" and path.stem not in ("administration", "topics")):
            kinds.append("partitioned")
        if made:
            found.append(Test(path.name, made, tuple(kinds)))
    return found


def table(tests: list[Test], every: Sequence[str], is_counted: bool = True) -> str:
    """A row for each call, with the number of tests on each kind of entity, or `yes`."""
    counts = {call: dict.fromkeys(KINDS, 0) for call in [*every, *(call for test in tests for call in test.calls)]}
    for test in tests:
        for call in test.calls:
            for kind in test.kinds:
                counts[call][kind] += 1

    def shown(count: int) -> str:
        return "" if not count else str(count) if is_counted else "yes"

    lines = ["| call | plain | sessions | partitioned |", "|---|---|---|---|"]
    for call in sorted(counts, key=str.lower):
        lines.append(f"| `{call}` | " + " | ".join(shown(counts[call][kind]) for kind in KINDS) + " |")
    return "".join(f"{line}\n" for line in lines)


def written(text: str) -> str:
    """The document with its tables as the marks have them now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = []
    for language in LANGUAGES:
        tests = language.tests()
        runs = sum(len(test.kinds) for test in tests)
        calls = [] if language in (JMS, SPRING) else listed_calls(TESTS / language.files.partition("/")[0])
        rows = table(tests, calls)
        parts.append(f"\n### {language.title}\n\n{len(tests)} tests, {runs} with their kinds of entities.\n\n{rows}")
    python = [path for folder in (TESTS, INTEGRATION) for path in folder.glob("test_*.py")]
    scripts = INTEGRATION / "js"
    for title, calls, paths in (
        ("Python: azure-servicebus", python_calls(), python),
        (
            "JavaScript: @azure/service-bus",
            listed_calls(scripts),
            [*scripts.glob("*.mjs"), *scripts.glob("scenarios/*")],
        ),
    ):
        parts.append(f"\n### {title}\n\n{table(files_with(calls, paths), calls, is_counted=False)}")
    return before + BEGIN + "".join(parts) + "\n" + END + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/sdks.md")
    text = DOCUMENT.read_text()
    if parser.parse_args().write:
        DOCUMENT.write_text(written(text))
    elif written(text) != text:
        sys.exit("docs/sdks.md is out of date: run `python tools/sdk_calls.py --write`")


if __name__ == "__main__":
    main()
