"""`aaiclick role`: manage dataset roles of an organisation and their members."""

from __future__ import annotations

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import CreateRoleRequest, Membership, RoleResponse
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.org import new_slug_argument
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import NAME

ROLE = click.argument("role")
USER = click.argument("user")


@click.group()
def role() -> None:
    """Create, list and remove roles; grant and revoke them.

    \b
    aaiclick role create analysts
    aaiclick role grant analysts ann@example.org
    """


@role.command("ls")
@org_option
@output_option
def list_roles(org: str, output: str) -> None:
    """List roles."""
    with open_operations(org) as operations:
        print_models(operations.list_roles(), output, _table_row, empty_message="No roles found.")


@role.command("create")
@new_slug_argument
@click.option("--name", type=NAME, default=None, help="Display name [default: SLUG].")
@org_option
@output_option
def create_role(slug: str, name: str | None, org: str, output: str) -> None:
    """Create a role. Set the datasets it may read with 'aaiclick datasets readers'."""
    new_role = parse_fields(CreateRoleRequest, {"slug": slug, "name": name or slug})
    with open_operations(org) as operations:
        print_model(operations.create_role(new_role), output, _table_row)
    print_message(f"Grant it with: aaiclick role grant {slug} USER")


@role.command("rm")
@ROLE
@org_option
def remove_role(role: str, org: str) -> None:
    """Remove a role, by its slug or id, from the organisation and all users."""
    with open_operations(org) as operations:
        operations.delete_role(role)
    print_message(f"Role {role!r} removed.")


@role.command("members")
@ROLE
@org_option
@output_option
def list_members(role: str, org: str, output: str) -> None:
    """List the members of a role."""
    with open_operations(org) as operations:
        members = operations.list_role_members(role)
        print_models(members, output, _member_row, empty_message=f"Role {role!r} has no members.")


@role.command("grant")
@ROLE
@USER
@org_option
def grant_role(role: str, user: str, org: str) -> None:
    """Grant a role to a user, by its subject or id."""
    with open_operations(org) as operations:
        operations.grant_role(role, user)
    print_message(f"Role {role!r} granted to user {user}.")


@role.command("revoke")
@ROLE
@USER
@org_option
def revoke_role(role: str, user: str, org: str) -> None:
    """Revoke a role from a user, by its subject or id."""
    with open_operations(org) as operations:
        operations.revoke_role(role, user)
    print_message(f"Role {role!r} revoked from user {user}.")


def _member_row(member: Membership) -> Row:
    return {"user": str(member.user_id), "subject": member.external_id, "granted": format_time(member.created_at)}


def _table_row(role: RoleResponse) -> Row:
    return {"id": str(role.id), "slug": role.slug, "name": role.name, "created": format_time(role.created_at)}
