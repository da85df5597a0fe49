"""Parse YAML into a tree in which every node has a file position.

The tree is built from parser events: depth, number of nodes and alias expansion are limited while reading. Values
follow the core schema of YAML 1.2 (`no` and `12:30` are text). Tags, multiple documents, duplicate keys and non-text
keys are rejected. Problems that leave the rest readable are collected, so that one pass reports all of them.
"""

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

from aaiclick.catalog.errors import DagProblem, FilePosition

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
class ScalarNode:
    position: FilePosition
    value: Any
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class SequenceNode:
    position: FilePosition
    items: list[Node]
    size: int
    height: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    position: FilePosition
    entries: dict[str, tuple[FilePosition, Node]]
    size: int
    height: int


Node = ScalarNode | SequenceNode | MappingNode


@dataclass
class ParseResult:
    """The root node (None if there is nothing to check) and the problems found."""

    root: Node | None = None
    problems: list[DagProblem] = field(default_factory=list[DagProblem])


class _Stop(Exception):  # noqa: N818  (control flow: the problem is already recorded)
    """Stops parsing: the rest is meaningless or too expensive."""


@dataclass
class _OpenCollection:
    """A collection being read. `key` is the pending key; the value of an invalid key is dropped."""

    position: FilePosition
    anchor: str | None
    is_mapping: bool
    items: list[Node] = field(default_factory=list["Node"])
    entries: dict[str, tuple[FilePosition, Node]] = field(default_factory=dict[str, tuple[FilePosition, "Node"]])
    merges: list[tuple[FilePosition, Node]] = field(default_factory=list[tuple[FilePosition, "Node"]])
    key: tuple[FilePosition, str | None] | None = None
    size: int = 1
    height: int = 0


def parse_yaml(content: bytes | str) -> ParseResult:
    """Parse the content of a file; problems are returned, not raised, and the time is bounded."""
    result = ParseResult()
    text = _decode(content, result) if isinstance(content, bytes) else content
    if text is None:
        return result
    if len(text) > MAX_BYTES:
        result.problems.append(_too_large(len(text)))
        return result
    builder = _TreeBuilder(result)
    try:
        for event in _read_events(text, result):
            builder.handle_event(event)
    except _Stop:
        return result
    if builder.root is None and not result.problems:
        result.problems.append(
            DagProblem(FilePosition(), "", "The file is empty.", "Write a DAG: a name and a list of jobs.")
        )
    result.root = builder.root
    return result


def _too_large(size: int) -> DagProblem:
    return DagProblem(
        FilePosition(), "", f"The file is too large: {size:,} bytes, at most {MAX_BYTES:,} are read.", "Split the DAG."
    )


def _decode(content: bytes, result: ParseResult) -> str | None:
    if len(content) > MAX_BYTES:
        result.problems.append(_too_large(len(content)))
        return None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        result.problems.append(DagProblem(FilePosition(), "", "The file is UTF-16.", "Save it as UTF-8."))
        return None
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        what = f"Byte 0x{content[error.start]:02x} is not UTF-8."
        result.problems.append(DagProblem(_position_at(before, len(before)), "", what, "Save the file as UTF-8."))
        return None


def _position_at(text: str, index: int) -> FilePosition:
    before = text[:index]
    return FilePosition(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _read_events(text: str, result: ParseResult) -> Iterator[Event]:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        position = _position_at(text, int(error.position))
        what = f"The character U+{int(error.character):04X} is not allowed in YAML."
        result.problems.append(DagProblem(position, "", what, "Remove it."))
        return
    try:
        while loader.check_event():
            yield loader.get_event()
    except yaml.MarkedYAMLError as error:
        # An unclosed quote or bracket is detected far from where it begins.
        opened = "flow" in str(error.context) or "quoted" in str(error.context)
        mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
        position = FilePosition(mark.line + 1, mark.column + 1) if mark else FilePosition()
        line = text.splitlines()[position.line - 1] if position.line <= len(text.splitlines()) else ""
        result.problems.append(DagProblem(position, "", *_describe_syntax_error(error, line)))
        raise _Stop from None
    except (ValueError, OverflowError):  # raised by PyYAML: an escape beyond Unicode, a huge version number
        mark = loader.get_mark()
        what = "This number or escape is out of range."
        result.problems.append(
            DagProblem(FilePosition(mark.line + 1, mark.column + 1), "", what, "Write a smaller one.")
        )
        raise _Stop from None
    finally:
        loader.dispose()


def _describe_syntax_error(error: yaml.MarkedYAMLError, line: str) -> tuple[str, str]:
    message = " ".join(part for part in (error.context, error.problem) if part)
    what = f"Invalid YAML: {message}."
    if re.search(r"[:\-]\s+[*@`%]", line):
        return what, "Put quotes around text that begins with *, @, ` or %."
    if "mapping values are not allowed" in message:
        return what, "Put quotes around text that contains ': ', or check the indentation."
    if "\\t" in message:
        return what, "Indent with spaces."
    return what, "Check indentation, quotes and brackets around here."


class _TreeBuilder:
    """Builds the tree from parser events."""

    def __init__(self, result: ParseResult) -> None:
        self.root: Node | None = None
        self._problems = result.problems
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0

    def handle_event(self, event: Event) -> None:
        mark = event.start_mark
        position = FilePosition(mark.line + 1, mark.column + 1) if mark else FilePosition()
        match event:
            case ScalarEvent():
                self._check_tag(event.tag, event.implicit == (False, False), position)
                self._add_node(ScalarNode(position, self._parse_scalar(event, position)), event.anchor, position)
            case SequenceStartEvent() | MappingStartEvent():
                self._check_tag(event.tag, not event.implicit, position)
                if len(self._open) >= MAX_DEPTH:
                    self._stop(position, f"The nesting is deeper than {MAX_DEPTH} levels.", "Flatten it.")
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._open.append(_OpenCollection(position, event.anchor, isinstance(event, MappingStartEvent)))
            case SequenceEndEvent() | MappingEndEvent():
                frame = self._open.pop()
                self._add_node(self._close_collection(frame), frame.anchor, frame.position)
            case AliasEvent():
                self._add_node(self._resolve_alias(str(event.anchor), position), None, position)
            case DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop(
                        position, "The file contains more than one document.", "Put each DAG into a file of its own."
                    )
            case _:
                pass

    def _resolve_alias(self, anchor: str, position: FilePosition) -> Node:
        if anchor not in self._anchors:
            anchors = ", ".join(f"&{name}" for name in sorted(self._anchors)) or "none"
            self._add_problem(position, f"*{anchor} is not defined before it is used.", f"Anchors so far: {anchors}.")
            return ScalarNode(position, None)
        target = self._anchors[anchor]
        if target is None:
            self._stop(position, f"*{anchor} refers to a node that contains it.", "Write the value out.")
        if len(self._open) + target.height > MAX_DEPTH:
            self._stop(position, f"*{anchor} makes the nesting deeper than {MAX_DEPTH} levels.", "Flatten it.")
        return target

    def _add_node(self, node: Node, anchor: str | None, position: FilePosition) -> None:
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
                position, f"The file has more than {MAX_NODES:,} values, with aliases expanded.", "Use fewer aliases."
            )
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.key is None:
            frame.key = (position, self._check_key(frame, node, position))
        else:
            self._add_pair(frame, *frame.key, node)

    def _check_key(self, frame: _OpenCollection, node: Node, position: FilePosition) -> str | None:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            shown = f"{node.value!r:.40}" if isinstance(node, ScalarNode) else "a collection"
            self._add_problem(position, f"A key must be text, not {shown}.", "Put quotes around it.")
            return None
        if node.value in frame.entries:
            first_position = frame.entries[node.value][0]
            self._add_problem(
                position, f"The key {node.value!r} is a duplicate of line {first_position.line}.", "Keep one."
            )
            return None
        return node.value

    def _add_pair(self, frame: _OpenCollection, position: FilePosition, key: str | None, node: Node) -> None:
        frame.key = None
        if key == "<<":
            frame.merges.append((position, node))
        elif key is not None:
            frame.entries[key] = (position, node)

    def _close_collection(self, frame: _OpenCollection) -> Node:
        if not frame.is_mapping:
            return SequenceNode(frame.position, frame.items, frame.size, frame.height)
        for position, node in frame.merges:
            for item in node.items if isinstance(node, SequenceNode) else [node]:
                if isinstance(item, MappingNode):
                    frame.entries = item.entries | frame.entries
                else:
                    self._add_problem(position, "<< takes an alias of a mapping.", "For example <<: *common.")
        return MappingNode(frame.position, frame.entries, frame.size, frame.height)

    def _check_tag(self, tag: str | None, explicit: bool, position: FilePosition) -> None:
        if tag is not None and explicit:
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            self._add_problem(position, f"The tag {shown:.60} is not allowed.", "Leave it out: values are plain.")

    def _parse_scalar(self, event: ScalarEvent, position: FilePosition) -> object:
        text = event.value
        if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self._add_problem(position, "The text contains a NUL or a lone surrogate.", "Remove the escape.")
            return ""
        if not event.implicit[0]:
            return text
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            return self._parse_integer(text, position)
        if _FLOAT.fullmatch(text):
            value = math.inf if "n" in text.lower() else float(text)
            if math.isfinite(value):
                return value
            self._add_problem(position, f"{text:.40} is not a number that can be stored.", "Write a finite one.")
            return 0.0
        return text

    def _parse_integer(self, text: str, position: FilePosition) -> int:
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        if len(text) <= 25:
            value = int(text, base)
            if -(1 << 63) <= value < 1 << 63:
                return value
        self._add_problem(position, f"{text:.40} does not fit into 64 bits.", "Put quotes around it if it is text.")
        return 0

    def _add_problem(self, position: FilePosition, what: str, remedy: str) -> None:
        self._problems.append(DagProblem(position, self._current_field(), what, remedy))
        if len(self._problems) >= MAX_PROBLEMS:
            raise _Stop

    def _stop(self, position: FilePosition, what: str, remedy: str) -> NoReturn:
        self._problems.append(DagProblem(position, self._current_field(), what, remedy))
        raise _Stop

    def _current_field(self) -> str:
        path: list[str | int] = []
        for frame in self._open:
            if not frame.is_mapping:
                path.append(len(frame.items))
            elif frame.key is not None and frame.key[1] is not None:
                path.append(frame.key[1])
        return format_path(tuple(path[:MAX_SHOWN]))


def format_path(path: Path) -> str:
    """Format a path: jobs[2].source.schedule."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def to_plain(node: Node) -> Any:
    """Convert a tree to dicts, lists and values."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [to_plain(item) for item in node.items]
    return {key: to_plain(value) for key, (_, value) in node.entries.items()}


def locate_path(root: Node, path: Path, *, key: bool = False) -> tuple[FilePosition, Path]:
    """Return the position of the value (or key) at a path, and the part of the path that is in the file.

    Parts that are not in the file (a missing key, the name of a union variant) are skipped: the position is that of the
    nearest enclosing node.
    """
    node, position, located = root, root.position, list[str | int]()
    for part in path:
        if isinstance(node, MappingNode) and isinstance(part, str) and part in node.entries:
            key_position, node = node.entries[part]
            position = key_position if key else node.position
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            position = node.position
        else:
            continue
        located.append(part)
    return position, tuple(located)
