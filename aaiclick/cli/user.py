"""`aaiclick user`: manage users of an identity provider."""

from __future__ import annotations

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import CreateUserRequest, UpdateUserRequest, User
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import NAME, BoundedText
from aaiclick.store.tenancy.users import PLATFORM_ROLES


@click.group()
def user() -> None:
    """Add, list, change and remove users.

    \b
    aaiclick user ls
    """


@user.command("create")
@click.argument("subject", type=BoundedText(500))
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default="reader", show_default=True,
              help="Role in the organisation.")  # fmt: skip
@click.option("--email", type=NAME, default=None, help="E-mail address, for display.")
@org_option
@output_option
def create_user(subject: str, role: str, email: str | None, org: str, output: str) -> None:
    """Add a user. SUBJECT is the subject in the identity provider's tokens."""
    new_user = parse_fields(CreateUserRequest, {"external_id": subject, "role": role, "email": email})
    with open_operations(org) as operations:
        print_model(operations.create_user(new_user), output, _table_row)


@user.command("ls")
@org_option
@output_option
def list_users(org: str, output: str) -> None:
    """List users."""
    with open_operations(org) as operations:
        print_models(operations.list_users(), output, _table_row, empty_message="No users found.")


@user.command("set")
@click.argument("user")
@click.option(
    "--role", type=click.Choice(PLATFORM_ROLES), default=None, help="Role in the organisation [default: unchanged]."
)
@click.option("--email", type=BoundedText(allow_empty=True), default=None,
              help="E-mail address, '' for none [default: unchanged].")  # fmt: skip
@click.option(
    "--disabled/--enabled", default=None, help="Disable or enable the user and its API keys [default: unchanged]."
)
@org_option
@output_option
def update_user(user: str, role: str | None, email: str | None, disabled: bool | None, org: str, output: str) -> None:
    """Change a user, by its subject or id."""
    fields = {"role": role, "disabled": disabled} | ({} if email is None else {"email": email or None})
    changes = parse_fields(UpdateUserRequest, fields)
    with open_operations(org) as operations:
        print_model(operations.update_user(user, changes), output, _table_row)


@user.command("rm")
@click.argument("user")
@org_option
def remove_user(user: str, org: str) -> None:
    """Remove a user, by its subject or id, with its API keys and memberships."""
    with open_operations(org) as operations:
        operations.delete_user(user)
    print_message(f"User {user} removed.")


def _table_row(user: User) -> Row:
    return {
        "id": str(user.id),
        "subject": user.external_id,
        "email": user.email,
        "role": user.role,
        "created": format_time(user.created_at),
        "disabled": format_time(user.disabled_at),
    }
