"""`--prices`: a price list of the package, or a file of the user's own."""

from __future__ import annotations

import click

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import PriceBook
from tandembus.metering.price_files import DEFAULT_LIST, load_prices
from tandembus.metering.prices import PriceList


def price_list(_: click.Context, __: click.Parameter, name_or_file: str | None) -> PriceList | None:
    """The callback of the option."""
    if name_or_file is None:
        return None
    try:
        return load_prices(name_or_file)
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None


def given_price_lists(
    context: click.Context, parameter: click.Parameter, names_or_files: tuple[str, ...]
) -> PriceBook | None:
    """Likewise, where something else counts if none is given."""
    return price_lists(context, parameter, names_or_files) if names_or_files else None


def price_lists(_: click.Context, __: click.Parameter, names_or_files: tuple[str, ...]) -> PriceBook:
    """Likewise, where several may be given: each counts from its date on."""
    try:
        return PriceBook([load_prices(each) for each in names_or_files or (DEFAULT_LIST,)])
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None
