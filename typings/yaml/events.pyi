"""Parser events of PyYAML."""

from .error import Mark

class Event:
    start_mark: Mark | None

class DocumentStartEvent(Event): ...

class AliasEvent(Event):
    anchor: str

class ScalarEvent(Event):
    anchor: str | None
    tag: str | None
    implicit: tuple[bool, bool]
    value: str
    style: str | None

class _CollectionStartEvent(Event):
    anchor: str | None
    tag: str | None
    implicit: bool

class SequenceStartEvent(_CollectionStartEvent): ...
class MappingStartEvent(_CollectionStartEvent): ...
class SequenceEndEvent(Event): ...
class MappingEndEvent(Event): ...
