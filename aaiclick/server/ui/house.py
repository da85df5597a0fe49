"""What the pages of one server share beside the service: what they remember, how often they may ask, who signs in."""

from __future__ import annotations

from aaiclick.server.service import Service
from aaiclick.server.ui.code_flow import CodeFlow
from aaiclick.server.ui.guestbook import Guestbook
from aaiclick.server.ui.history import History
from aaiclick.server.ui.kept import Kept
from aaiclick.server.ui.pace import Pace


class House:
    """Outlives requests, like the service it is over."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.pace = Pace()
        self.guestbook = Guestbook()
        self.kept = Kept()
        self.history = History(service)
        self.code_flow = CodeFlow.of(service.identity.provider, service.settings)
