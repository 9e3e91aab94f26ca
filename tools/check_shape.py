"""Compares the sources with the shape that they are to have: check_shape.py [--table] [--strict].

`[tool.tandembus.shape]` in `pyproject.toml` holds a budget of lines for each package. Beside the budgets the script
checks that no folder has more than 25 modules, that no module is named with a gerund and that no class name is defined
twice. It prints one line for each kind of finding and fails only with `--strict`; `--table` lists lines, files and
functions by package.
"""

import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "tandembus"
LARGEST_FOLDER = 25
OVER_BUDGET = 1.1
NOUNS = {"tracing", "testing", "metering", "pairing", "routing", "forwarding", "encoding", "string", "ping", "timing"}
"""Names in -ing that are nouns of the domain."""


def package_of(path: Path) -> str:
    """Modules directly in `tandembus` count as the package `root`."""
    parts = path.relative_to(SOURCES).parts
    return parts[0] if len(parts) > 1 else "root"


def is_gerund(name: str) -> bool:
    return name.endswith("ing") and name.split("_")[-1] not in NOUNS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="list lines, files and functions by package")
    parser.add_argument("--strict", action="store_true", help="fail where something is found")
    arguments = parser.parse_args()
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["tandembus"]["shape"]["lines"]
    lines, files, functions, folders = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    classes: dict[str, list[Path]] = defaultdict(list)
    gerunds = []
    for path in sorted(SOURCES.rglob("*.py")):
        package, text = package_of(path), path.read_text()
        lines[package] += text.count("\n")
        nodes = list(ast.walk(ast.parse(text)))
        functions[package] += sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
        if path.name != "__init__.py":
            files[package] += 1
            folders[str(path.parent.relative_to(ROOT))] += 1
            if is_gerund(path.stem):
                gerunds.append(path)
    if arguments.table:
        for package in sorted(lines, key=lambda each: -lines[each]):
            row = f"{lines[package]:7,} lines of {budgets[package]:6,}"
            print(f"{package:14}{row} {files[package]:4} files {functions[package]:5,} functions")
        print(f"{'sum':14}{lines.total():7,} lines of {sum(budgets.values()):6,} {files.total():4} files", end="")
        print(f" {functions.total():5,} functions")
    findings = {
        "packages over their budget": [each for each in lines if lines[each] > budgets[each] * OVER_BUDGET],
        f"folders with more than {LARGEST_FOLDER} modules": [
            each for each in folders if folders[each] > LARGEST_FOLDER
        ],
        "modules named with a gerund": [str(path.relative_to(SOURCES)) for path in gerunds],
        "class names defined twice": [name for name, paths in classes.items() if len(paths) > 1],
    }
    for kind, found in findings.items():
        if found:
            print(f"shape: {len(found)} {kind}: {', '.join(found[:4])}{', ...' if len(found) > 4 else ''}")
    if arguments.strict and any(findings.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
