"""Endpoints of secrets. Their values are written and not read."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import SecretSummary, SetSecretRequest
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class SecretEndpoints:
    """Methods for secrets."""

    @listing
    def list_secrets(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[SecretSummary]]:
        """Iterate over secrets without their values."""
        return build_request("GET", Page[SecretSummary], "secrets", query={"cursor": cursor, "limit": limit})

    @endpoint
    def set_secret(self, name: str, secret: SetSecretRequest) -> ApiRequest[SecretSummary]:
        """Set a secret. Its value is not readable afterwards."""
        return build_request("PUT", SecretSummary, "secrets", name, body=_reveal(secret))

    @endpoint
    def delete_secret(self, name: str) -> ApiRequest[None]:
        """Delete a secret: tasks that use it fail from now on."""
        return build_request("DELETE", NoneType, "secrets", name)

    @listing
    def list_org_secrets(
        self, org: str, *, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[SecretSummary]]:
        """Iterate over secrets of another organisation without their values."""
        query = {"cursor": cursor, "limit": limit}
        return build_request("GET", Page[SecretSummary], "orgs", org, "secrets", query=query)

    @endpoint
    def set_org_secret(self, org: str, name: str, secret: SetSecretRequest) -> ApiRequest[SecretSummary]:
        """Set a secret of another organisation."""
        return build_request("PUT", SecretSummary, "orgs", org, "secrets", name, body=_reveal(secret))

    @endpoint
    def delete_org_secret(self, org: str, name: str) -> ApiRequest[None]:
        """Delete a secret of another organisation."""
        return build_request("DELETE", NoneType, "orgs", org, "secrets", name)


def _reveal(secret: SetSecretRequest) -> dict[str, object]:
    """The body with its value, which a dump of the model masks."""
    return {"value": secret.value.get_secret_value(), "host": secret.host}
