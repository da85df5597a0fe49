"""Endpoints of users. A user is named by its subject at the identity provider, or by its id."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateUserRequest, UpdateUserRequest, User
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class UserEndpoints:
    """Methods for users."""

    @listing
    def list_users(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[User]]:
        """Iterate over users."""
        return build_request("GET", Page[User], "users", query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_user(self, user: str) -> ApiRequest[User]:
        """Get a user."""
        return build_request("GET", User, "users", user)

    @endpoint
    def create_user(self, new_user: CreateUserRequest) -> ApiRequest[User]:
        """Create a user; `external_id` is its subject at the identity provider."""
        return build_request("POST", User, "users", body=new_user)

    @endpoint
    def update_user(self, user: str, changes: UpdateUserRequest) -> ApiRequest[User]:
        """Change the email or role of a user, or disable it and its keys; an omitted field is unchanged."""
        return build_request("PATCH", User, "users", user, body=changes)

    @endpoint
    def delete_user(self, user: str) -> ApiRequest[None]:
        """Delete a user with its keys and memberships."""
        return build_request("DELETE", NoneType, "users", user)
