"""Endpoints of dataset roles and their members. A role is named by its slug or id, a user by its subject or id."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateRoleRequest, Membership, RoleResponse
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class RoleEndpoints:
    """Methods for roles."""

    @listing
    def list_roles(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[RoleResponse]]:
        """Iterate over roles."""
        return build_request("GET", Page[RoleResponse], "roles", query={"cursor": cursor, "limit": limit})

    @endpoint
    def create_role(self, new_role: CreateRoleRequest) -> ApiRequest[RoleResponse]:
        """Create a role."""
        return build_request("POST", RoleResponse, "roles", body=new_role)

    @endpoint
    def delete_role(self, role: str) -> ApiRequest[None]:
        """Delete a role and its memberships."""
        return build_request("DELETE", NoneType, "roles", role)

    @listing
    def list_role_members(
        self, role: str, *, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[Membership]]:
        """Iterate over the members of a role."""
        query = {"cursor": cursor, "limit": limit}
        return build_request("GET", Page[Membership], "roles", role, "members", query=query)

    @endpoint
    def grant_role(self, role: str, user: str) -> ApiRequest[Membership]:
        """Grant a role to a user."""
        return build_request("PUT", Membership, "roles", role, "members", user)

    @endpoint
    def revoke_role(self, role: str, user: str) -> ApiRequest[None]:
        """Revoke a role from a user."""
        return build_request("DELETE", NoneType, "roles", role, "members", user)
