"""ORC reader."""

from . import Schema

class ORCFile:
    schema: Schema
    def __init__(self, source: str) -> None: ...
