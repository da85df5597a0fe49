"""Keys, secrets, users, organisations, and who did what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from aaiclick.errors import NotFoundError, RequestError
from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes import audit, keys, orgs, secrets, users
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.store.org_secrets import check_name

pages = Pages()

Body = TypeVar("Body", bound=BaseModel)
SHOWN = 200
VIEWS = ("keys", "secrets", "users", "orgs", "audit")


@pages.get("/admin", Permission.ADMIN)
async def show(visit: Visit) -> Response:
    return await _show(visit, visit.query("view"))


async def _show(visit: Visit, view: str, made: shapes.KeyMade | None = None) -> Response:
    views = [name for name in VIEWS if name != "orgs" or visit.may("operator")]
    view = view if view in views else "keys"
    cursor = visit.query("cursor") or None
    lists: dict[str, Callable[[], Awaitable[Any]]] = {
        "keys": lambda: keys.index(visit.call, cursor, SHOWN),
        "secrets": lambda: secrets.index(visit.call, cursor, SHOWN),
        "users": lambda: users.index(visit.call, cursor, SHOWN),
        "orgs": lambda: orgs.index(visit.call, cursor, SHOWN),
        "audit": lambda: audit.index(visit.call, cursor, SHOWN),
    }
    found = await lists[view]()
    return visit.page("admin.html", view=view, views=views, found=found, made=made)


@pages.post("/admin/keys", Permission.ADMIN)
async def make_key(visit: Visit) -> Response:
    """Make a key. The answer shows it, this once: that is why nothing redirects here."""
    days = visit.sent("days").strip()
    lifetime = _days(days) * 86_400 if days else None
    fields = {"name": visit.sent("name"), "scopes": visit.form.get("scope", []), "lifetime_seconds": lifetime}
    made = await keys.create(visit.call, visit.request, _read(shapes.NewKey, fields))
    return await _show(visit, "keys", made)


def _days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError("The number of days is no number.") from None


@pages.post("/admin/keys/revoke", Permission.ADMIN)
async def revoke_key(visit: Visit) -> Response:
    done = await keys.revoke(visit.call, _uuid(visit.sent("id")))
    return visit.back(f"Key {done.name} opens nothing any more.")


@pages.post("/admin/secrets", Permission.ADMIN)
async def set_secret(visit: Visit) -> Response:
    name = _secret_name(visit.sent("name"))
    fields = {"value": visit.sent("value"), "host": visit.sent("host").strip() or None}
    await secrets.put(visit.call, name, _read(shapes.NewSecret, fields))
    return visit.go("/admin?view=secrets", f"Secret {name} set.")


@pages.post("/admin/secrets/remove", Permission.ADMIN)
async def remove_secret(visit: Visit) -> Response:
    name = _secret_name(visit.sent("name"))
    await secrets.delete(visit.call, name)
    return visit.go("/admin?view=secrets", f"Secret {name} removed.")


def _secret_name(text: str) -> str:
    check_name(text)
    return text


@pages.post("/admin/users", Permission.ADMIN)
async def add_user(visit: Visit) -> Response:
    fields = {name: visit.sent(name) for name in ("external_id", "role")}
    body = _read(shapes.NewUser, fields | {"email": visit.sent("email") or None})
    await users.create(visit.call, body)
    return visit.go("/admin?view=users", f"{body.external_id} is a {body.role} now.")


@pages.post("/admin/users/change", Permission.ADMIN)
async def change_user(visit: Visit) -> Response:
    fields = {
        "email": visit.sent("email") or None,
        "role": visit.sent("role"),
        "disabled": visit.sent("disabled") == "yes",
    }
    await users.change(visit.call, _uuid(visit.sent("id")), _read(shapes.UserChange, fields))
    return visit.go("/admin?view=users", "Changed.")


@pages.post("/admin/orgs", Permission.OPERATOR)
async def make_org(visit: Visit) -> Response:
    body = _read(shapes.NewOrg, {"name": visit.sent("name"), "slug": visit.sent("slug")})
    await orgs.create(visit.call, body)
    return visit.go("/admin?view=orgs", f"{body.name} is an organisation now.")


@pages.post("/admin/orgs/limits", Permission.OPERATOR)
async def limit_org(visit: Visit) -> Response:
    """Give an organisation its share and its limits."""
    org = await orgs.show(visit.call, _uuid(visit.sent("id")))
    fields = {field: visit.sent(field).strip() or None for field in ("max_running", "rate_per_second", "rate_burst")}
    body = _read(shapes.OrgChange, {"name": org.name, "weight": visit.sent("weight").strip() or 1, **fields})
    await orgs.change(visit.call, org.id, body)
    return visit.go("/admin?view=orgs", f"Limits of the organisation {org.name} are set.")


@pages.post("/admin/orgs/pause", Permission.OPERATOR)
async def pause_org(visit: Visit) -> Response:
    org = _uuid(visit.sent("id"))
    await orgs.pause(visit.call, org)
    return visit.back("Paused: nothing more of it begins.", undo="/admin/orgs/resume", id=str(org))


@pages.post("/admin/orgs/resume", Permission.OPERATOR)
async def resume_org(visit: Visit) -> Response:
    org = _uuid(visit.sent("id"))
    await orgs.resume(visit.call, org)
    return visit.back("It goes on.", undo="/admin/orgs/pause", id=str(org))


def _read(shape: type[Body], fields: dict[str, Any]) -> Body:
    try:
        return shape.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = first["loc"][0] if first["loc"] else "it"
        raise RequestError(f"{where}: {first['msg']}.", remedy="Go back and correct it.") from None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError("There is nothing with this id.") from None
