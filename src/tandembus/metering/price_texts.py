"""A price list as the text of a file: what a bill was made with can be kept beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal

from tandembus.metering.prices import Premium, PriceList, Tier


def prices_text(prices: PriceList) -> str:
    """`parse_prices` makes the same list of it."""
    counting, basic, standard = prices.counting, prices.basic, prices.standard
    lines = [
        f"name = {_quoted(prices.name)}",
        f"as_of = {prices.as_of.isoformat()}",
        f"currency = {_quoted(prices.currency)}",
        f"seen = {_quoted(prices.seen)}",
        "[counting]",
        f"unit_bytes = {counting.unit_bytes}",
        f"batch = {_quoted(counting.batch)}",
        f"forward_hop = {counting.forward_hop}",
        "[basic]",
        f"per_million = {basic.per_million:f}",
        f"connections = {basic.connections}",
        "[months]",
        f"hours = {prices.month_hours}",
        f"connection_hours = {prices.connection_hours}",
        "[bandwidth]",
        f"egress_per_gb = {prices.egress_per_gb:f}",
        *([] if prices.premium is None else _premium(prices.premium)),
        "[standard]",
        f"base_per_hour = {standard.base_per_hour:f}",
        *([] if standard.base_per_month is None else [f"base_per_month = {standard.base_per_month:f}"]),
        *_tiers("operations", standard.operations),
        *_tiers("connections", standard.connections),
    ]
    return "\n".join(lines) + "\n"


def _premium(premium: Premium) -> list[str]:
    return [
        "[premium]",
        f"unit_per_hour = {premium.unit_per_hour:f}",
        f"units = [{', '.join(map(str, premium.units))}]",
        f"replicated_per_gb = [{', '.join(map(_figure, premium.replicated_per_gb))}]",
    ]


def _tiers(name: str, tiers: Iterable[Tier]) -> list[str]:
    lines = []
    for tier in tiers:
        lines.append(f"[[standard.{name}]]")
        if tier.up_to is not None:
            lines.append(f"up_to = {tier.up_to:f}")
        lines.append(f"price = {tier.price:f}")
    return lines


def _figure(number: Decimal) -> str:
    return f"{number:f}"


def _quoted(text: str) -> str:
    # Texts of JSON are texts of TOML, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
