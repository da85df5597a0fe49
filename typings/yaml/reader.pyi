"""Reader of PyYAML."""

from .error import YAMLError

class ReaderError(YAMLError):
    position: int
    character: int
