"""Shared state of the web UI of one server process."""

from __future__ import annotations

from aaiclick.server.app_state import AppState
from aaiclick.server.cache import QueryCache
from aaiclick.server.ui.metrics_sampler import MetricsHistory
from aaiclick.server.ui.oidc_login import AuthorizationCodeFlow
from aaiclick.server.ui.refresh_interval import RefreshInterval
from aaiclick.server.ui.sign_in_audit import SignInAudit


class UiState:
    """Cache, metrics history, refresh interval and sign-in components, shared by all requests."""

    def __init__(self, app_state: AppState) -> None:
        self.app_state = app_state
        self.refresh_interval = RefreshInterval()
        self.sign_in_audit = SignInAudit()
        self.cache = QueryCache(ttl_factor=20, min_ttl_seconds=0.5, max_entries=500)
        self.history = MetricsHistory(app_state)
        self.code_flow = AuthorizationCodeFlow.from_settings(app_state.authenticator.provider, app_state.settings)
