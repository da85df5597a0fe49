"""Admin page: API keys, secrets, users, organisations and the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from aaiclick.api.orgs import (
    CreatedKeyResponse,
    CreateKeyRequest,
    CreateOrgRequest,
    CreateUserRequest,
    SetSecretRequest,
    UpdateOrgRequest,
    UpdateUserRequest,
)
from aaiclick.errors import NotFoundError, RequestError
from aaiclick.operations.actor import Permission
from aaiclick.server.routes import api_keys, audit, orgs, secrets, users
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.store.tenancy.secrets import check_secret_name

pages = Pages()

Body = TypeVar("Body", bound=BaseModel)
SHOWN = 200
VIEWS = ("keys", "secrets", "users", "orgs", "audit")


@pages.get("/admin", Permission.ADMIN)
async def show_admin(page: PageRequest) -> Response:
    return await _render_view(page, page.query_param("view"))


async def _render_view(page: PageRequest, view: str, created_key: CreatedKeyResponse | None = None) -> Response:
    views = [name for name in VIEWS if name != "orgs" or page.has_permission("operator")]
    view = view if view in views else "keys"
    cursor = page.query_param("cursor") or None
    lists: dict[str, Callable[[], Awaitable[object]]] = {
        "keys": lambda: api_keys.list_keys(page.call, cursor, SHOWN),
        "secrets": lambda: secrets.list_secrets(page.call, cursor, SHOWN),
        "users": lambda: users.list_users(page.call, cursor, SHOWN),
        "orgs": lambda: orgs.list_orgs(page.call, cursor, SHOWN),
        "audit": lambda: audit.list_audit_entries(page.call, cursor, SHOWN),
    }
    listing = await lists[view]()
    return page.render("admin.html", view=view, views=views, listing=listing, created_key=created_key)


@pages.post("/admin/keys", Permission.ADMIN)
async def create_key(page: PageRequest) -> Response:
    """Create an API key and show it; a redirect would lose the key, which is stored only as a hash."""
    days = page.form_field("days").strip()
    lifetime = _parse_days(days) * 86_400 if days else None
    fields = {"name": page.form_field("name"), "scopes": page.form.get("scope", []), "lifetime_seconds": lifetime}
    created_key = await api_keys.create_key(page.call, page.request, _parse_form(CreateKeyRequest, fields))
    return await _render_view(page, "keys", created_key)


def _parse_days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError("Invalid number of days.") from None


@pages.post("/admin/keys/revoke", Permission.ADMIN)
async def revoke_key(page: PageRequest) -> Response:
    revoked_key = await api_keys.revoke_key(page.call, _parse_uuid(page.form_field("id")))
    return page.redirect_back(f"API key {revoked_key.name} revoked.")


@pages.post("/admin/secrets", Permission.ADMIN)
async def set_secret(page: PageRequest) -> Response:
    name = _check_secret_name(page.form_field("name"))
    fields = {"value": page.form_field("value"), "host": page.form_field("host").strip() or None}
    await secrets.set_secret(page.call, name, _parse_form(SetSecretRequest, fields))
    return page.redirect("/admin?view=secrets", f"Secret {name} saved.")


@pages.post("/admin/secrets/remove", Permission.ADMIN)
async def remove_secret(page: PageRequest) -> Response:
    name = _check_secret_name(page.form_field("name"))
    await secrets.delete_secret(page.call, name)
    return page.redirect("/admin?view=secrets", f"Secret {name} removed.")


def _check_secret_name(text: str) -> str:
    check_secret_name(text)
    return text


@pages.post("/admin/users", Permission.ADMIN)
async def add_user(page: PageRequest) -> Response:
    fields = {name: page.form_field(name) for name in ("external_id", "role")}
    body = _parse_form(CreateUserRequest, fields | {"email": page.form_field("email") or None})
    await users.create_user(page.call, body)
    return page.redirect("/admin?view=users", f"User {body.external_id} added as {body.role}.")


@pages.post("/admin/users/change", Permission.ADMIN)
async def change_user(page: PageRequest) -> Response:
    fields = {
        "email": page.form_field("email") or None,
        "role": page.form_field("role"),
        "disabled": page.form_field("disabled") == "yes",
    }
    await users.update_user(page.call, _parse_uuid(page.form_field("id")), _parse_form(UpdateUserRequest, fields))
    return page.redirect("/admin?view=users", "User updated.")


@pages.post("/admin/orgs", Permission.OPERATOR)
async def create_org(page: PageRequest) -> Response:
    body = _parse_form(CreateOrgRequest, {"name": page.form_field("name"), "slug": page.form_field("slug")})
    await orgs.create_org(page.call, body)
    return page.redirect("/admin?view=orgs", f"Organisation {body.name} created.")


@pages.post("/admin/orgs/limits", Permission.OPERATOR)
async def set_org_limits(page: PageRequest) -> Response:
    """Set an organisation's weight and limits."""
    org = await orgs.get_org(page.call, _parse_uuid(page.form_field("id")))
    fields = {
        field: page.form_field(field).strip() or None for field in ("max_running", "rate_per_second", "rate_burst")
    }
    body = _parse_form(UpdateOrgRequest, {"name": org.name, "weight": page.form_field("weight").strip() or 1, **fields})
    await orgs.update_org(page.call, org.id, body)
    return page.redirect("/admin?view=orgs", f"Limits of organisation {org.name} updated.")


@pages.post("/admin/orgs/pause", Permission.OPERATOR)
async def pause_org(page: PageRequest) -> Response:
    org = _parse_uuid(page.form_field("id"))
    await orgs.pause_org(page.call, org)
    return page.redirect_back("Organisation paused. Running tasks continue.", undo="/admin/orgs/resume", id=str(org))


@pages.post("/admin/orgs/resume", Permission.OPERATOR)
async def resume_org(page: PageRequest) -> Response:
    org = _parse_uuid(page.form_field("id"))
    await orgs.resume_org(page.call, org)
    return page.redirect_back("Organisation resumed.", undo="/admin/orgs/pause", id=str(org))


def _parse_form(schema: type[Body], fields: dict[str, Any]) -> Body:
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = first["loc"][0] if first["loc"] else "it"
        raise RequestError(f"{field_name}: {first['msg']}.", remedy="Go back and correct it.") from None


def _parse_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError("Nothing found with this id.") from None
