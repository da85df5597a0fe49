"""Worker protocol, aliases: the paths of the design documents (`aaiclick.api.worker_protocol.endpoints.ALIASES`)."""

from __future__ import annotations

from dataclasses import replace

from aaiclick.api.worker_protocol.endpoints import ALIASES
from aaiclick.server.routes.worker_api import dag_tasks, tasks
from aaiclick.server.routing import RouteDeclaration, Routes

_DECLARED = {route.path: route for route in (*tasks.routes.declared, *dag_tasks.routes.declared)}


def _declare_alias(alias: str, route: RouteDeclaration) -> RouteDeclaration:
    texts = {"operation_id": f"{route.endpoint.__name__}_alias", "summary": f"Alias of {route.path}"}
    return replace(route, path=alias, options={**route.options, **texts})


routes = Routes("worker-api", [_declare_alias(alias, _DECLARED[path]) for alias, path in ALIASES.items()])
