"""Endpoints of organisations."""

from __future__ import annotations

from typing import Any

from aaiclick.client.endpoint import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class OrgEndpoints:
    """Methods for organisations."""

    @endpoint
    def whoami(self) -> ApiRequest[dict[str, Any]]:
        """Get the organisation, actor and scopes of the credential."""
        return build_request("GET", dict[str, Any], "whoami")
