"""`tandembus policy`: shared access policies of the namespace or of one entity, and their keys."""

from __future__ import annotations

import re
from typing import Final

import click

from tandembus.cli.administering import administration, creating
from tandembus.cli.arguments import checked_name
from tandembus.cli.entity_output import show_deleted
from tandembus.cli.output import print_fields, print_json, print_table, say
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.client.access_policies import RIGHTS, AccessPolicy
from tandembus.client.administration import Administration
from tandembus.client.policies import EntityPolicies, NamespacePolicies, Policies
from tandembus.security.sas import make_connection_string, parse_connection_string

HEADINGS: Final = ("policy", "rights")

POLICY_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,256}", re.ASCII)


def _checked_policy(_: click.Context, __: click.Parameter, name: str) -> str:
    if not POLICY_NAME.fullmatch(name):
        raise click.BadParameter("a policy's name has letters, digits, '.', '_' and '-'")
    return name


name_argument: Final = click.argument("name", callback=_checked_policy)
entity_option: Final = click.option(
    "--entity", metavar="NAME", callback=checked_name, help="Of this queue or topic, not of the namespace."
)


def _policies(namespace: Administration, entity: str | None) -> Policies:
    return NamespacePolicies(namespace.requests) if entity is None else EntityPolicies(namespace, entity)


def _rights(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """`--rights Send,Listen`, or the option several times."""
    known = {right.lower(): right for right in RIGHTS}
    asked = [part.strip().lower() for text in texts for part in text.split(",")]
    if not asked or any(part not in known for part in asked):
        raise click.BadParameter(f"name one or more of {', '.join(RIGHTS)}, with commas between them")
    return tuple([right for part, right in known.items() if part in asked])


rights_option: Final = click.option(
    "--rights", multiple=True, callback=_rights, metavar="RIGHT,...", help="Send, Listen, Manage: which of them."
)


@click.group()
def policy() -> None:
    """Create, list, show, update and delete shared access policies, and regenerate their keys.

    \b
    A policy has a name, rights (Send, Listen, Manage) and two keys. Whoever knows one of them has the rights: in the
    whole namespace, or on one queue or topic (--entity). With two keys, clients can change over one by one:
      tandembus policy regenerate app --secondary     now give the new secondary key to all clients
      tandembus policy regenerate app                 the old primary key is worth nothing any more
    JSON of a policy: {"name", "rights", "entity", "primary_key", "secondary_key", "primary_connection_string",
      "secondary_connection_string"}
    """


@policy.command("list")
@entity_option
@namespace_options
async def list_policies(target: Target, entity: str | None) -> None:
    """List policies with their rights, without their keys.

    \b
    Examples:
      tandembus policy list
      tandembus policy list --entity orders

    \b
    JSON: one policy per line: {"name", "rights", "entity"}
    """
    async with administration(target, entity=entity) as namespace:
        found = await _policies(namespace, entity).all()
    if target.as_json:
        for each in found:
            print_json(_facts(each, entity))
    elif not found:
        say(("no policies; `tandembus policy create NAME` makes one", "dim"))
    else:
        print_table(HEADINGS, [[each.name, ", ".join(each.rights)] for each in found])


@policy.command("show")
@name_argument
@entity_option
@namespace_options
async def show(target: Target, name: str, entity: str | None) -> None:
    """Show a policy with its keys and connection strings: treat them like passwords.

    \b
    Examples:
      tandembus policy show app
      tandembus policy show app --json | jq -r .primary_connection_string

    JSON: the policy.
    """
    async with administration(target, entity=entity) as namespace:
        _show(target, await _policies(namespace, entity).get(name), entity)


@policy.command("create")
@name_argument
@rights_option
@entity_option
@click.option("--primary-key", default="", help="This key, in place of a random one.")
@click.option("--secondary-key", default="", help="This key, in place of a random one.")
@namespace_options
async def create(
    target: Target, name: str, rights: tuple[str, ...], entity: str | None, primary_key: str, secondary_key: str
) -> None:
    """Create a policy; keys that are not given are made.

    \b
    Examples:
      tandembus policy create app --rights Send,Listen
      tandembus policy create shop --rights Send --entity orders

    JSON: the policy.
    """
    asked = AccessPolicy(name, rights, primary_key, secondary_key)
    async with administration(target, entity=entity) as namespace:
        _show(target, await creating(_policies(namespace, entity).create(asked)), entity, "created")


@policy.command("update")
@name_argument
@rights_option
@entity_option
@namespace_options
async def update(target: Target, name: str, rights: tuple[str, ...], entity: str | None) -> None:
    """Give a policy other rights; its keys stay.

    \b
    Examples:
      tandembus policy update app --rights Listen

    JSON: the policy.
    """
    async with administration(target, entity=entity) as namespace:
        _show(target, await _policies(namespace, entity).allow(name, rights), entity, "updated")


@policy.command("regenerate")
@name_argument
@click.option("--secondary", is_flag=True, help="The secondary key, not the primary one.")
@entity_option
@confirmed(
    lambda name, secondary, entity: (
        f"Make the {'secondary' if secondary else 'primary'} key of {name} anew? Clients with the old one lose access."
    )
)
async def regenerate(target: Target, name: str, secondary: bool, entity: str | None) -> None:
    """Make one key of a policy anew; the other stays as it is.

    The old key is worth nothing from then on. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus policy regenerate app
      tandembus policy regenerate app --secondary --entity orders

    JSON: the policy.
    """
    async with administration(target, entity=entity) as namespace:
        _show(target, await _policies(namespace, entity).regenerate(name, secondary), entity, "regenerated")


@policy.command("delete")
@name_argument
@entity_option
@confirmed(lambda name, entity: f"Delete the policy {name} of {entity or 'the namespace'}? Its clients lose access.")
async def delete(target: Target, name: str, entity: str | None) -> None:
    """Delete a policy: its keys are worth nothing from then on.

    Asks first when a person is there to answer.

    \b
    JSON: {"policy", "deleted": true}
    """
    async with administration(target, entity=entity) as namespace:
        await _policies(namespace, entity).remove(name)
    show_deleted(target, "policy", name)


def _facts(policy: AccessPolicy, entity: str | None) -> dict[str, object]:
    return {"name": policy.name, "rights": list(policy.rights), "entity": entity}


def _show(target: Target, policy: AccessPolicy, entity: str | None, said: str = "") -> None:
    record = {**_facts(policy, entity), "primary_key": policy.primary_key, "secondary_key": policy.secondary_key}
    strings: dict[str, object] = {}
    for which, key in (("primary", policy.primary_key), ("secondary", policy.secondary_key)):
        strings[f"{which}_connection_string"] = _connection_string(target, policy.name, key, entity) if key else None
    if target.as_json:
        print_json({**record, **strings})
        return
    if said:
        say((said, "green"), " ", (policy.name, "bold"))
    shown = {**record, "rights": ", ".join(policy.rights)}
    print_fields({name.replace("_", " "): value or None for name, value in shown.items()})
    for name, text in strings.items():
        # On lines of their own, and never folded: they are there to be copied.
        say((name.replace("_", " "), "cyan"))
        say(f"  {text or '-'}")


def _connection_string(target: Target, name: str, key: str, entity: str | None) -> str:
    """The same namespace, by this policy."""
    parts = parse_connection_string(target.connection_string)
    return make_connection_string(parts.host, parts.port, name, key, entity, parts.use_emulator)
