"""Endpoints of API keys. A key is named by its prefix or id."""

from __future__ import annotations

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import ApiKey, CreatedKeyResponse, CreateKeyRequest
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class ApiKeyEndpoints:
    """Methods for API keys."""

    @listing
    def list_keys(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[ApiKey]]:
        """Iterate over API keys including revoked ones, without their secrets."""
        return build_request("GET", Page[ApiKey], "keys", query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_key(self, key: str) -> ApiRequest[ApiKey]:
        """Get an API key without its secret."""
        return build_request("GET", ApiKey, "keys", key)

    @endpoint
    def create_key(self, new_key: CreateKeyRequest) -> ApiRequest[CreatedKeyResponse]:
        """Create an API key. Only this response contains its secret."""
        return build_request("POST", CreatedKeyResponse, "keys", body=new_key)

    @endpoint
    def create_org_key(self, org: str, new_key: CreateKeyRequest) -> ApiRequest[CreatedKeyResponse]:
        """Create an API key of another organisation, such as that of its first admin."""
        return build_request("POST", CreatedKeyResponse, "orgs", org, "keys", body=new_key)

    @endpoint
    def revoke_key(self, key: str) -> ApiRequest[ApiKey]:
        """Revoke an API key."""
        return build_request("DELETE", ApiKey, "keys", key)
