"""`tandembus token`."""

from __future__ import annotations

import click

from tandembus.cli.arguments import checked_path
from tandembus.cli.failures import NOT_AUTHORIZED, Failure
from tandembus.cli.output import print_json
from tandembus.cli.parameters import duration, moment_text
from tandembus.cli.target import Target, namespace_options
from tandembus.client.durations import NEVER
from tandembus.clock import SystemClock
from tandembus.security.sas import make_token, parse_connection_string


@click.command()
@click.argument("entity", required=False, callback=checked_path)
@click.option(
    "--lifetime", "lifetime_s", type=duration, default="1h", show_default=True, help="How long the token is good for."
)
@namespace_options
async def token(target: Target, entity: str | None, lifetime_s: float) -> None:
    """Print a token that can be used in place of a key, for HTTP requests.

    It is signed with the key of the connection string and has the rights of its policy, on ENTITY only if one is named.
    Nobody has to be asked for it. Treat it like a password.

    \b
    Examples:
      curl -H "Authorization: $(tandembus token)" http://localhost:5300/orders
      curl -H "Authorization: $(tandembus token orders --lifetime 5m)" -d hello http://localhost:5300/orders/messages

    \b
    JSON: {"token", "uri", "expires_at"}
    """
    parts = parse_connection_string(target.connection_string)
    if parts.key_name is None or parts.key is None:
        advice = "Use one with SharedAccessKeyName and SharedAccessKey."
        raise Failure("The connection string has no key to sign with.", NOT_AUTHORIZED, advice, "Unauthorized")
    if lifetime_s == NEVER:
        raise click.UsageError("A token ends some day: give --lifetime a duration.")
    path = entity or parts.entity_path
    uri = f"sb://{parts.endpoint}/" if path is None else f"sb://{parts.endpoint}/{path.strip('/')}"
    expires_at = SystemClock().now() + lifetime_s
    made = make_token(uri, parts.key_name, parts.key, expires_at)
    if target.as_json:
        print_json({"token": made, "uri": uri, "expires_at": moment_text(float(int(expires_at)))})
    else:
        click.echo(made)
