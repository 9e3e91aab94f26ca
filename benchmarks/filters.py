"""What rules cost: microseconds for one message and one rule, compiled and interpreted.

    python -m benchmarks.filters

No broker and no network: the filters alone, each on messages it has not seen, so that finding and decoding their
properties is part of the figure. With many filters on one topic a message's properties are found once for all of them.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tandembus import build
from tandembus.amqp.encoding.sections import application_properties_section, data_section, properties_section
from tandembus.descriptions import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from tandembus.message import Message, parse_message
from tandembus.rules import MessageView, RuleSet, compile_rule

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
MESSAGES = 200
MANY_FILTERS = 2_000
ROUND_S = 0.15
ROUNDS = 5

TYPICAL: dict[str, Filter] = {
    "true filter": TrueFilter(),
    "correlation filter, one field": CorrelationFilter(correlation_id="c-77"),
    "correlation filter, label and a property": CorrelationFilter(label="order", properties=(("color", "blue"),)),
    "color = 'blue'": SqlFilter("color = 'blue'"),
    "color = 'blue' AND quantity > 10": SqlFilter("color = 'blue' AND quantity > 10"),
    "sys.Label = 'order' AND region LIKE 'eu-%'": SqlFilter("sys.Label = 'order' AND region LIKE 'eu-%'"),
    "region IN (...) AND NOT EXISTS(cancelled)": SqlFilter(
        "region IN ('us-east', 'eu-north', 'eu-west') AND NOT EXISTS(cancelled)"
    ),
    "quantity * price > 100 OR urgent = TRUE": SqlFilter("quantity * price > 100 OR urgent = TRUE"),
    "customer LIKE '%12_4%'": SqlFilter("customer LIKE '%12_4%'"),
    "color > 5, a type clash": SqlFilter("color > 5"),
}
ACTION = "SET quantity = quantity / 2; REMOVE urgent; SET origin = 'bench'"
ONE_SQL_FILTER = "SQL filter, the dearest typical one, per message"
MANY_SQL_FILTERS = "2,000 SQL filters on a topic, per message and filter"
MANY_CORRELATION_FILTERS = "2,000 correlation filters on a topic, per message and filter"


def typical_messages() -> list[Message]:
    """1 KiB each, with six properties."""
    return [_message(number) for number in range(MESSAGES)]


def _message(number: int) -> Message:
    properties: dict[str, object] = {
        "color": ("blue", "red")[number % 2],
        "quantity": number,
        "price": 9.5,
        "region": ("eu-west", "us-east", "ap-south")[number % 3],
        "urgent": number % 5 == 0,
        "customer": f"c-{number:07}",
    }
    return parse_message(
        properties_section(f"id-{number}", subject="order", correlation_id="c-77", content_type="application/json")
        + application_properties_section(properties)
        + data_section(bytes(1024))
    )


def rule_set(wanted: Filter, action: str | None = None) -> RuleSet:
    rule = RuleDescription("bench", wanted, None if action is None else SqlAction(action))
    return RuleSet([compile_rule(rule)])


def evaluate_all(rule_sets: list[RuleSet], messages: list[Message]) -> None:
    for number, message in enumerate(messages):
        view = MessageView(message, number, 1_700_000_000_000)
        for rules in rule_sets:
            rules.evaluate(view)


def best_time_us(work: Callable[[], None], units: int) -> float:
    """Of several rounds, each long enough for the clock; per unit of work, in time of the processor."""
    best = float("inf")
    for _ in range(ROUNDS):
        began_at = time.thread_time()
        times = 0
        while (spent := time.thread_time() - began_at) < ROUND_S:
            work()
            times += 1
        best = min(best, spent / times / units)
    return best * 1e6


def measure() -> dict[str, float]:
    """All figures of the build that runs, by row."""
    messages = typical_messages()
    figures: dict[str, float] = {}
    for name, wanted in TYPICAL.items():
        figures[name] = best_time_us(partial(evaluate_all, [rule_set(wanted)], messages), MESSAGES)
    figures[ONE_SQL_FILTER] = max(figures[name] for name, wanted in TYPICAL.items() if isinstance(wanted, SqlFilter))
    acting = rule_set(TrueFilter(), ACTION)
    figures["an action of three statements"] = best_time_us(partial(evaluate_all, [acting], messages), MESSAGES)
    kinds: dict[str, list[Filter]] = {
        MANY_SQL_FILTERS: [SqlFilter(f"quantity = {number} AND color = 'blue'") for number in range(MANY_FILTERS)],
        MANY_CORRELATION_FILTERS: [CorrelationFilter(label=f"order-{number}") for number in range(MANY_FILTERS)],
    }
    for row, filters in kinds.items():
        many = [rule_set(wanted) for wanted in filters]
        figures[row] = best_time_us(partial(evaluate_all, many, messages[:1]), MANY_FILTERS)
    return figures


def measure_in_process(*, is_interpreted: bool) -> dict[str, float]:
    """In a process of its own: the build that is installed, or the sources."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)} if is_interpreted else dict(os.environ)
    command = [sys.executable, "-m", "benchmarks.filters", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filters", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures of this build alone, for programs")
    if parser.parse_args().json:
        print(json.dumps(measure()))
        return
    ours, interpreted = measure(), measure_in_process(is_interpreted=True)
    print(f"| microseconds per message and rule | {build.current().kind} | interpreted |\n|---|---|---|")
    for row, value in ours.items():
        print(f"| {row} | {value:.2f} | {interpreted[row]:.2f} |")


if __name__ == "__main__":
    main()
