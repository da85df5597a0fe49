"""Parse a query into a tree that is one SELECT over names, or refuse it.

The original text never runs. It is parsed into a tree, the tree is written with every identifier quoted, and every
other word of the new text must be on the allowlist. A table function, a setting, FORMAT, INTO OUTFILE, a comment, a
second statement or a function that reads files therefore never reaches ClickHouse, whatever the parser made of it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from aaiclick.catalog.errors import QueryRefusedError
from aaiclick.catalog.queries.allowlist import KEYWORDS, TYPES, is_function
from aaiclick.data.compile import sql

MAX_LENGTH = 100_000
MAX_TOKENS = 20_000
MAX_DEPTH = 40
MAX_TREE_DEPTH = 200
MAX_RELATIONS = 500
"""Tables, joins, subqueries and branches of UNION in one query."""

MAX_BACKTRACKS = 4
"""Nested lambdas, and nested brackets after a type name: the parser backtracks once per level."""

_STRUCTURE: dict[str, str] = {
    "settings": "SETTINGS",
    "format": "FORMAT",
    "into": "INTO",
    "locks": "FOR UPDATE",
    "hint": "a hint",
    "sample": "SAMPLE",
    "pivots": "PIVOT",
    "match": "MATCH_RECOGNIZE",
    "kind": "SELECT AS",
    "operation_modifiers": "a modifier",
}
_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_TYPE_NAMES = {
    TokenType.DATE,
    TokenType.DATE32,
    TokenType.DATETIME,
    TokenType.DATETIME2,
    TokenType.DATETIME64,
    TokenType.TIME,
    TokenType.TIMESTAMP,
    TokenType.TIMESTAMPTZ,
    TokenType.TIMESTAMPLTZ,
    TokenType.JSON,
    TokenType.INTERVAL,
}
_PLAIN = {TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_select(text: str) -> exp.Query:
    """Parse a query; raises QueryRefusedError unless it is one plain SELECT."""
    if not text.strip():
        raise QueryRefusedError("The query is empty.", remedy="Write a SELECT.")
    if len(text) > MAX_LENGTH or "\x00" in text:
        raise QueryRefusedError(
            "The query is too long, or holds a NUL character.", remedy=f"At most {MAX_LENGTH:,} characters are read."
        )
    try:
        with limit_recursion():
            _check_size(text)
            trees = [tree for tree in sqlglot.parse(text, read="clickhouse") if tree is not None]
    except (SqlglotError, ValueError) as error:
        raise QueryRefusedError(
            f"The query cannot be read{_format_error_position(error)}.",
            remedy="Write one SELECT in the SQL of ClickHouse.",
        ) from None
    if len(trees) != 1:
        raise QueryRefusedError("The query is more than one statement.", remedy="Write one SELECT, without semicolon.")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        word = _WORD.search(text)
        shown = word[0].upper() if word else "This"
        raise QueryRefusedError(f"{shown:.40} is not a SELECT.", remedy="Only SELECT reads datasets.")
    with limit_recursion():
        _check_depth(tree)
        relations = 0
        for node in tree.walk():
            _check_node(node)
            relations += isinstance(node, exp.Table | exp.Query | exp.Join)
        if relations > MAX_RELATIONS:
            raise QueryRefusedError(
                f"The query has more than {MAX_RELATIONS} tables, joins and subqueries.", remedy="Split it."
            )
        check_allowlist(sql.to_text(tree.copy()))
    return tree


@contextmanager
def limit_recursion() -> Generator[None]:
    """Refuse queries that are too deep for the recursion of the parser, the printer and the checks."""
    try:
        yield
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> QueryRefusedError:
    return QueryRefusedError(
        "The query is nested too deeply.", remedy="Use WITH, or IN for many ORs, to take it apart."
    )


def _check_depth(tree: exp.Expr) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_TREE_DEPTH:
            raise _too_deep()
        level = [child for node in level for child in node.iter_expressions()]


def _check_size(text: str) -> None:
    """Check tokens and nesting before parsing, since the parser's cost grows with nesting."""
    tokens = sqlglot.tokenize(text, read="clickhouse")
    if len(tokens) > MAX_TOKENS:
        raise QueryRefusedError(f"The query has more than {MAX_TOKENS:,} words.", remedy="Split it.")
    open_levels = [0]  # per open bracket: number of backtracks inside it
    before = None
    for token in tokens:
        token_type = token.token_type
        if token_type in _OPENS or token_type is TokenType.CASE:
            open_levels.append(open_levels[-1] + (before in _TYPE_NAMES))
        elif (token_type in _CLOSES or token_type is TokenType.END) and len(open_levels) > 1:
            open_levels.pop()
        elif token_type is TokenType.ARROW or (token_type in _TYPE_NAMES and before in _TYPE_NAMES):
            open_levels[-1] += 1
        if len(open_levels) > MAX_DEPTH or open_levels[-1] > MAX_BACKTRACKS:
            raise _too_deep()
        before = token_type


def _format_error_position(error: Exception) -> str:
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        near = str(first.get("highlight") or "")[:40]
        return f" at line {first.get('line')}, column {first.get('col')}" + (f", near {near!r}" if near else "")
    return ""


def _check_node(node: exp.Expr) -> None:
    if isinstance(node, exp.Table):
        _check_table(node)
    elif isinstance(node, exp.Query):
        if isinstance(node, exp.Select) and not node.expressions:
            raise QueryRefusedError("The SELECT selects nothing.", remedy="Name columns, or write *.")
        for key, clause in _STRUCTURE.items():
            if node.args.get(key):
                raise QueryRefusedError(f"A query cannot contain {clause}.", remedy="Leave it out.")
    elif isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
        raise QueryRefusedError("A query cannot contain parameters.", remedy="Write the values out.")
    elif isinstance(node, exp.In):
        _check_in(node)
    elif isinstance(node, exp.DDL | exp.DML | exp.Command):  # pyright: ignore[reportPrivateImportUsage]
        raise QueryRefusedError(f"A query cannot contain {type(node).__name__.upper()}.", remedy="Write one SELECT.")
    elif isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and not isinstance(node.this, str):
        raise QueryRefusedError("The name of a function cannot be in quotes.", remedy="Write it without.")


def _check_table(node: exp.Table) -> None:
    if not isinstance(node.this, exp.Identifier):
        shown = node.this.name if isinstance(node.this, exp.Anonymous) else type(node.this).__name__.lower()
        raise QueryRefusedError(
            f"A query reads datasets by name, not from functions such as {shown:.60}.",
            remedy="Name a dataset; for rows without one: SELECT arrayJoin(range(100)) AS number",
        )
    extra = [key for key, value in node.args.items() if value and key not in ("this", "db", "alias", "joins")]
    if "sample" in extra:
        raise QueryRefusedError("A query cannot contain SAMPLE.", remedy="Leave it out.")
    alias = node.args.get("alias")
    if extra or (alias is not None and alias.args.get("columns")):
        raise QueryRefusedError(
            f"The dataset {table_name(node):.60} cannot be read in this way.", remedy="Write its name, and an alias."
        )


def _check_in(node: exp.In) -> None:
    """Refuse `x IN name`: ClickHouse interprets the name as a table."""
    values = node.expressions
    value = values[0] if len(values) == 1 else None
    while isinstance(value, exp.Paren):
        value = value.this
    if node.args.get("field") is not None or node.args.get("unnest") is not None or isinstance(value, exp.Column):
        raise QueryRefusedError(
            "IN takes a list of values or a SELECT.", remedy="For a list in a column use has(column, value)."
        )


def table_name(node: exp.Table) -> str:
    """Return the dataset that a table node names: name, or dag.name."""
    return ".".join(part.name for part in node.parts)


def check_allowlist(text: str) -> None:
    """Refuse a query with any word that is not on the allowlist."""
    tokens = sqlglot.tokenize(text, read="clickhouse")
    for index, token in enumerate(tokens):
        called = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
        if token.token_type is TokenType.IDENTIFIER and called:
            raise QueryRefusedError(f"{token.text:.60} cannot be called.", remedy="Quotes are for names of columns.")
        if token.token_type in _PLAIN or not _WORD.match(token.text):
            if token.token_type in (TokenType.L_BRACE, TokenType.HEREDOC_STRING, TokenType.SEMICOLON):
                raise QueryRefusedError("A query cannot contain { } or ;.", remedy="Write the values out.")
            continue
        word = token.text.lower()
        is_allowed = word in KEYWORDS or word in TYPES or (called and is_function(word))
        # A keyword token may have several words: GROUP BY, UNION ALL.
        if not is_allowed and not all(part in KEYWORDS for part in word.split()):
            what = f"The function {token.text:.60} is" if called else f"{token.text:.60} is"
            raise QueryRefusedError(f"{what} not allowed in a query.", remedy="Use plain functions of values.")


def iter_tables(tree: exp.Expr) -> Iterator[tuple[exp.Table, bool]]:
    """Yield every table of the tree, and whether it is a name that the query defines itself (WITH)."""
    yield from _iter_tables(tree, frozenset())


def _iter_tables(node: exp.Expr, defined: frozenset[str]) -> Iterator[tuple[exp.Table, bool]]:
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        for part in with_.expressions:
            inside = defined | {part.alias} if with_.args.get("recursive") and not part.args.get("scalar") else defined
            yield from _iter_tables(part.this, inside)
            if not part.args.get("scalar"):
                defined |= {part.alias}
    if isinstance(node, exp.Table):
        yield node, not node.args.get("db") and node.name in defined
    for child in node.iter_expressions():
        if child is not with_:
            yield from _iter_tables(child, defined)


def find_datasets_read(text: str) -> frozenset[str]:
    """Return the names of the datasets that a query reads."""
    with limit_recursion():
        return frozenset(table_name(table) for table, own in iter_tables(parse_select(text)) if not own)
