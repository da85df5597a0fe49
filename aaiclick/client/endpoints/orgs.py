"""Endpoints of organisations. An organisation is named by its slug or id."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateOrgRequest, Org, UpdateOrgRequest, WhoamiResponse
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class OrgEndpoints:
    """Methods for organisations."""

    @endpoint
    def whoami(self) -> ApiRequest[WhoamiResponse]:
        """Get the organisation, actor and scopes of the credential."""
        return build_request("GET", WhoamiResponse, "whoami")

    @listing
    def list_orgs(self, *, cursor: str | None = None, limit: int = 100) -> ApiRequest[Page[Org]]:
        """Iterate over organisations: the credential's own, or all for the operator."""
        return build_request("GET", Page[Org], "orgs", query={"cursor": cursor, "limit": limit})

    @endpoint
    def get_org(self, org: str) -> ApiRequest[Org]:
        """Get an organisation."""
        return build_request("GET", Org, "orgs", org)

    @endpoint
    def create_org(self, new_org: CreateOrgRequest) -> ApiRequest[Org]:
        """Create an organisation."""
        return build_request("POST", Org, "orgs", body=new_org)

    @endpoint
    def update_org(self, org: str, changes: UpdateOrgRequest) -> ApiRequest[Org]:
        """Set the weight and limits of an organisation, and its name if given; an omitted limit is removed."""
        return build_request("PUT", Org, "orgs", org, body=changes)

    @endpoint
    def pause_org(self, org: str) -> ApiRequest[None]:
        """Pause an organisation: none of its tasks starts."""
        return build_request("POST", NoneType, "orgs", org, "pause")

    @endpoint
    def resume_org(self, org: str) -> ApiRequest[None]:
        """Resume a paused organisation."""
        return build_request("POST", NoneType, "orgs", org, "resume")
