"""Admin page: API keys, secrets, users, organisations and the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import (
    CreatedKeyResponse,
    CreateKeyRequest,
    CreateOrgRequest,
    CreateUserRequest,
    SetSecretRequest,
    UpdateOrgRequest,
    UpdateUserRequest,
)
from aaiclick.errors import RequestError
from aaiclick.operations import api_keys, audit, orgs, secrets, users
from aaiclick.operations.actor import Permission
from aaiclick.server.ui.routing import PageRequest, Pages

pages = Pages()

SHOWN = 200
VIEWS = ("keys", "secrets", "users", "orgs", "audit")


@pages.get("/admin", Permission.ADMIN)
async def show_admin(page: PageRequest) -> Response:
    return await _render_view(page, page.query_param("view"))


async def _render_view(page: PageRequest, view: str, created_key: CreatedKeyResponse | None = None) -> Response:
    views = [name for name in VIEWS if name != "orgs" or page.has_permission("operator")]
    view = view if view in views else "keys"
    cursor = page.query_param("cursor") or None
    perform = page.call.perform
    lists: dict[str, Callable[[], Awaitable[object]]] = {
        "keys": lambda: perform(api_keys.list_keys, cursor=cursor, limit=SHOWN),
        "secrets": lambda: perform(secrets.list_secrets, cursor=cursor, limit=SHOWN),
        "users": lambda: perform(users.list_users, cursor=cursor, limit=SHOWN),
        "orgs": lambda: perform(orgs.list_orgs, cursor=cursor, limit=SHOWN),
        "audit": lambda: perform(audit.list_audit_entries, cursor=cursor, limit=SHOWN),
    }
    listing = await lists[view]()
    return page.render("admin.html", view=view, views=views, listing=listing, created_key=created_key)


@pages.post("/admin/keys", Permission.ADMIN)
async def create_key(page: PageRequest) -> Response:
    """Create an API key and show it; a redirect would lose the key, which is stored only as a hash."""
    days = page.form_field("days").strip()
    lifetime = _parse_days(days) * 86_400 if days else None
    fields = {"name": page.form_field("name"), "scopes": page.form.get("scope", []), "lifetime_seconds": lifetime}
    created_key = await page.call.perform(api_keys.create_key, parse_fields(CreateKeyRequest, fields))
    return await _render_view(page, "keys", created_key)


def _parse_days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError("Invalid number of days.") from None


@pages.post("/admin/keys/revoke", Permission.ADMIN)
async def revoke_key(page: PageRequest) -> Response:
    revoked_key = await page.call.perform(api_keys.revoke_key, _read_id(page))
    return page.redirect_back(f"API key {revoked_key.name} revoked.")


@pages.post("/admin/secrets", Permission.ADMIN)
async def set_secret(page: PageRequest) -> Response:
    name = page.form_field("name")
    fields = {"value": page.form_field("value"), "host": page.form_field("host").strip() or None}
    await page.call.perform(secrets.set_secret, name, parse_fields(SetSecretRequest, fields))
    return page.redirect("/admin?view=secrets", f"Secret {name} saved.")


@pages.post("/admin/secrets/remove", Permission.ADMIN)
async def remove_secret(page: PageRequest) -> Response:
    name = page.form_field("name")
    await page.call.perform(secrets.delete_secret, name)
    return page.redirect("/admin?view=secrets", f"Secret {name} removed.")


@pages.post("/admin/users", Permission.ADMIN)
async def add_user(page: PageRequest) -> Response:
    fields = {name: page.form_field(name) for name in ("external_id", "role")}
    body = parse_fields(CreateUserRequest, fields | {"email": page.form_field("email") or None})
    await page.call.perform(users.create_user, body)
    return page.redirect("/admin?view=users", f"User {body.external_id} added as {body.role}.")


@pages.post("/admin/users/change", Permission.ADMIN)
async def change_user(page: PageRequest) -> Response:
    fields = {"role": page.form_field("role"), "disabled": page.form_field("disabled") == "yes"}
    changes = parse_fields(UpdateUserRequest, fields)
    await page.call.perform(users.update_user, _read_id(page), changes)
    return page.redirect("/admin?view=users", "User updated.")


@pages.post("/admin/orgs", Permission.OPERATOR)
async def create_org(page: PageRequest) -> Response:
    body = parse_fields(CreateOrgRequest, {"name": page.form_field("name"), "slug": page.form_field("slug")})
    await page.call.perform(orgs.create_org, body)
    return page.redirect("/admin?view=orgs", f"Organisation {body.name} created.")


@pages.post("/admin/orgs/limits", Permission.OPERATOR)
async def set_org_limits(page: PageRequest) -> Response:
    """Set an organisation's weight and limits."""
    fields = {
        field: page.form_field(field).strip() or None for field in ("max_running", "rate_per_second", "rate_burst")
    }
    changes = parse_fields(UpdateOrgRequest, fields | {"weight": page.form_field("weight").strip() or 1})
    org = await page.call.perform(orgs.update_org, _read_id(page), changes)
    return page.redirect("/admin?view=orgs", f"Limits of organisation {org.name} updated.")


@pages.post("/admin/orgs/pause", Permission.OPERATOR)
async def pause_org(page: PageRequest) -> Response:
    org = _read_id(page)
    await page.call.perform(orgs.pause_org, org)
    return page.redirect_back("Organisation paused. Running tasks continue.", undo="/admin/orgs/resume", id=org)


@pages.post("/admin/orgs/resume", Permission.OPERATOR)
async def resume_org(page: PageRequest) -> Response:
    org = _read_id(page)
    await page.call.perform(orgs.resume_org, org)
    return page.redirect_back("Organisation resumed.", undo="/admin/orgs/pause", id=org)


def _read_id(page: PageRequest) -> str:
    """The id of the item, without characters that PostgreSQL refuses."""
    return page.form_field("id").replace("\x00", "")
