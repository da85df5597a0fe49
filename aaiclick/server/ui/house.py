"""What the pages of one server share beside the service: what they remember and how often they may ask."""

from __future__ import annotations

from aaiclick.server.service import Service
from aaiclick.server.ui.history import History
from aaiclick.server.ui.kept import Kept
from aaiclick.server.ui.pace import Pace


class House:
    """Outlives requests, like the service it is over."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.pace = Pace()
        self.kept = Kept()
        self.history = History(service)
