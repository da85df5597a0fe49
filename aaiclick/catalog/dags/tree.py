"""YAML text as a tree in which every node knows its place.

The tree is built from the parser's events, which come one by one: depth, number of nodes and the growth by aliases are
bounded while reading, before anything is made of them. Values follow the core schema of YAML 1.2 (`no` and `12:30` are
text); tags, further documents, repeated keys and keys that are not text are refused. Problems that leave the rest
readable are collected, so that one reading names all of them.
"""

# PyYAML's readers are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from aaiclick.catalog.errors import Place, Problem

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_PROBLEMS = 100
MAX_SHOWN = 8

Path = tuple[str | int, ...]

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Scalar:
    place: Place
    value: Any
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class Sequence:
    place: Place
    items: list[Node]
    size: int
    height: int


@dataclass(frozen=True, slots=True)
class Mapping:
    place: Place
    entries: dict[str, tuple[Place, Node]]
    size: int
    height: int


Node = Scalar | Sequence | Mapping


@dataclass
class Reading:
    """A tree (none if there is nothing to look at) and what was wrong on the way to it."""

    root: Node | None = None
    problems: list[Problem] = field(default_factory=list[Problem])


class _Stop(Exception):  # noqa: N818  (not an error of its own: the problem is already noted)
    """Reading ends here: going on would mean nothing, or cost too much."""


@dataclass
class _Open:
    """A collection that is being read. `key` waits for its value; a key that cannot be used swallows it."""

    place: Place
    anchor: str | None
    is_mapping: bool
    items: list[Node] = field(default_factory=list["Node"])
    entries: dict[str, tuple[Place, Node]] = field(default_factory=dict[str, tuple[Place, "Node"]])
    merges: list[tuple[Place, Node]] = field(default_factory=list[tuple[Place, "Node"]])
    key: tuple[Place, str | None] | None = None
    size: int = 1
    height: int = 0


def read_tree(content: bytes | str) -> Reading:
    """The tree of a file's content; never raises for what is in it, never takes long."""
    reading = Reading()
    text = _decoded(content, reading) if isinstance(content, bytes) else content
    if text is None:
        return reading
    if len(text) > MAX_BYTES:
        reading.problems.append(_too_large(len(text)))
        return reading
    builder = _Builder(reading)
    try:
        for event in _events(text, reading):
            builder.take(event)
    except _Stop:
        return reading
    if builder.root is None and not reading.problems:
        reading.problems.append(Problem(Place(), "", "The file is empty.", "Write a DAG: a name and a list of jobs."))
    reading.root = builder.root
    return reading


def _too_large(size: int) -> Problem:
    return Problem(
        Place(), "", f"The file is too large: {size:,} bytes, at most {MAX_BYTES:,} are read.", "Split the DAG."
    )


def _decoded(content: bytes, reading: Reading) -> str | None:
    if len(content) > MAX_BYTES:
        reading.problems.append(_too_large(len(content)))
        return None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        reading.problems.append(Problem(Place(), "", "The file is UTF-16.", "Save it as UTF-8."))
        return None
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        what = f"Byte 0x{content[error.start]:02x} is not UTF-8."
        reading.problems.append(Problem(_place_at(before, len(before)), "", what, "Save the file as UTF-8."))
        return None


def _place_at(text: str, index: int) -> Place:
    before = text[:index]
    return Place(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _events(text: str, reading: Reading) -> Iterator[Event]:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        place = _place_at(text, int(error.position))
        what = f"The character U+{int(error.character):04X} cannot stand in YAML."
        reading.problems.append(Problem(place, "", what, "Remove it."))
        return
    try:
        while loader.check_event():
            yield loader.get_event()
    except yaml.MarkedYAMLError as error:
        # What was opened and never closed is noticed far from where it begins.
        opened = "flow" in str(error.context) or "quoted" in str(error.context)
        mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place()
        line = text.splitlines()[place.line - 1] if place.line <= len(text.splitlines()) else ""
        reading.problems.append(Problem(place, "", *_syntax(error, line)))
        raise _Stop from None
    except (ValueError, OverflowError):  # the parser's own: an escape past Unicode, a version of a thousand digits
        mark = loader.get_mark()
        what = "This number or escape is out of range."
        reading.problems.append(Problem(Place(mark.line + 1, mark.column + 1), "", what, "Write a smaller one."))
        raise _Stop from None
    finally:
        loader.dispose()


def _syntax(error: yaml.MarkedYAMLError, line: str) -> tuple[str, str]:
    said = " ".join(part for part in (error.context, error.problem) if part)
    what = f"This is not YAML: {said}."
    if re.search(r"[:\-]\s+[*@`%]", line):
        return what, "Put quotes around text that begins with *, @, ` or %."
    if "mapping values are not allowed" in said:
        return what, "Put quotes around text that holds ': ', or check the indentation."
    if "\\t" in said:
        return what, "Indent with spaces."
    return what, "Check indentation, quotes and brackets around here."


class _Builder:
    """Takes events, keeps the collections that are open, ends with the root."""

    def __init__(self, reading: Reading) -> None:
        self.root: Node | None = None
        self._problems = reading.problems
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0

    def take(self, event: Event) -> None:
        mark = event.start_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place()
        match event:
            case ScalarEvent():
                self._check_tag(event.tag, event.implicit == (False, False), place)
                self._add(Scalar(place, self._value(event, place)), event.anchor, place)
            case SequenceStartEvent() | MappingStartEvent():
                self._check_tag(event.tag, not event.implicit, place)
                if len(self._open) >= MAX_DEPTH:
                    self._stop(place, f"The nesting is deeper than {MAX_DEPTH} levels.", "Flatten it.")
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._open.append(_Open(place, event.anchor, isinstance(event, MappingStartEvent)))
            case SequenceEndEvent() | MappingEndEvent():
                frame = self._open.pop()
                self._add(self._closed(frame), frame.anchor, frame.place)
            case AliasEvent():
                self._add(self._target(str(event.anchor), place), None, place)
            case DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop(place, "The file holds more than one document.", "Put each DAG into a file of its own.")
            case _:
                pass

    def _target(self, anchor: str, place: Place) -> Node:
        if anchor not in self._anchors:
            known = ", ".join(f"&{each}" for each in sorted(self._anchors)) or "none"
            self._note(place, f"*{anchor} refers to nothing that stands before it.", f"Anchors so far: {known}.")
            return Scalar(place, None)
        target = self._anchors[anchor]
        if target is None:
            self._stop(place, f"*{anchor} refers to something that holds it.", "Write the value out.")
        if len(self._open) + target.height > MAX_DEPTH:
            self._stop(place, f"*{anchor} makes the nesting deeper than {MAX_DEPTH} levels.", "Flatten it.")
        return target

    def _add(self, node: Node, anchor: str | None, place: Place) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.size += node.size
        frame.height = max(frame.height, node.height + 1)
        if frame.size > MAX_NODES:
            self._stop(
                place, f"The file holds more than {MAX_NODES:,} values, aliases written out.", "Use fewer aliases."
            )
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.key is None:
            frame.key = (place, self._key(frame, node, place))
        else:
            self._pair(frame, *frame.key, node)

    def _key(self, frame: _Open, node: Node, place: Place) -> str | None:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            shown = f"{node.value!r:.40}" if isinstance(node, Scalar) else "a collection"
            self._note(place, f"A key must be text, not {shown}.", "Put quotes around it.")
            return None
        if node.value in frame.entries:
            first = frame.entries[node.value][0]
            self._note(place, f"The key {node.value!r} is here twice; the first is in line {first.line}.", "Keep one.")
            return None
        return node.value

    def _pair(self, frame: _Open, place: Place, key: str | None, node: Node) -> None:
        frame.key = None
        if key == "<<":
            frame.merges.append((place, node))
        elif key is not None:
            frame.entries[key] = (place, node)

    def _closed(self, frame: _Open) -> Node:
        if not frame.is_mapping:
            return Sequence(frame.place, frame.items, frame.size, frame.height)
        for place, node in frame.merges:
            for part in node.items if isinstance(node, Sequence) else [node]:
                if isinstance(part, Mapping):
                    frame.entries = part.entries | frame.entries
                else:
                    self._note(place, "<< takes an alias of a mapping.", "For example <<: *common.")
        return Mapping(frame.place, frame.entries, frame.size, frame.height)

    def _check_tag(self, tag: str | None, explicit: bool, place: Place) -> None:
        if tag is not None and explicit:
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            self._note(place, f"The tag {shown:.60} is not allowed.", "Leave it out: values are plain.")

    def _value(self, event: ScalarEvent, place: Place) -> Any:
        text = event.value
        if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self._note(place, "The text holds a NUL or half a character.", "Remove the escape.")
            return ""
        if not event.implicit[0]:
            return text
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            return self._integer(text, place)
        if _FLOAT.fullmatch(text):
            value = math.inf if "n" in text.lower() else float(text)
            if math.isfinite(value):
                return value
            self._note(place, f"{text:.40} is not a number that can be stored.", "Write a finite one.")
            return 0.0
        return text

    def _integer(self, text: str, place: Place) -> int:
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        if len(text) <= 25:
            value = int(text, base)
            if -(1 << 63) <= value < 1 << 63:
                return value
        self._note(place, f"{text:.40} does not fit into 64 bits.", "Put quotes around it if it is text.")
        return 0

    def _note(self, place: Place, what: str, remedy: str) -> None:
        self._problems.append(Problem(place, self._field(), what, remedy))
        if len(self._problems) >= MAX_PROBLEMS:
            raise _Stop

    def _stop(self, place: Place, what: str, remedy: str) -> NoReturn:
        self._problems.append(Problem(place, self._field(), what, remedy))
        raise _Stop

    def _field(self) -> str:
        path: list[str | int] = []
        for frame in self._open:
            if not frame.is_mapping:
                path.append(len(frame.items))
            elif frame.key is not None and frame.key[1] is not None:
                path.append(frame.key[1])
        return field_of(tuple(path[:MAX_SHOWN]))


def field_of(path: Path) -> str:
    """A path as people write it: jobs[2].source.schedule."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def plain(node: Node) -> Any:
    """The tree as dicts, lists and values."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(each) for each in node.items]
    return {key: plain(value) for key, (_, value) in node.entries.items()}


def locate(root: Node, path: Path, *, key: bool = False) -> tuple[Place, Path]:
    """Where the value (or the key) of a path stands, and how much of the path is in the file.

    What the file does not hold (a key that is absent, the name of a variant) is passed over: the place is that of the
    nearest thing around it.
    """
    node, place, found = root, root.place, list[str | int]()
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str) and part in node.entries:
            key_place, node = node.entries[part]
            place = key_place if key else node.place
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            place = node.place
        else:
            continue
        found.append(part)
    return place, tuple(found)
