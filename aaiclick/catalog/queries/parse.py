"""The text of a query as a tree that is one SELECT over names, or a refusal.

The text itself never runs. It is read into a tree, the tree is written again with every identifier in quotes, and
every other word of the new text must be on the list of `words`. So a table function, a setting, FORMAT, INTO OUTFILE,
a comment, a second statement, or a function that reads files has no way through, whatever the parser made of it.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType

from aaiclick.catalog.errors import QueryRefusedError
from aaiclick.catalog.queries.words import KEYWORDS, TYPES, is_function
from aaiclick.data import sql

MAX_LENGTH = 100_000
MAX_TOKENS = 20_000
MAX_DEPTH = 40
MAX_TREE_DEPTH = 200
MAX_RELATIONS = 500
"""Tables, joins, subqueries and branches of UNION in one query."""

MAX_BACKTRACKS = 4
"""Nested lambdas, and nested brackets after the name of a type: for each level the parser reads its content twice."""

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
    """The query as a tree; raises QueryRefusedError for anything that is not one plain SELECT."""
    if not text.strip():
        raise QueryRefusedError("The query is empty.", remedy="Write a SELECT.")
    if len(text) > MAX_LENGTH or "\x00" in text:
        raise QueryRefusedError(
            "The query is too long, or holds a NUL character.", remedy=f"At most {MAX_LENGTH:,} characters are read."
        )
    try:
        with shallow():
            _check_size(text)
            trees = [tree for tree in sqlglot.parse(text, read="clickhouse") if tree is not None]
    except (SqlglotError, ValueError) as error:
        raise QueryRefusedError(
            f"The query cannot be read{_where(error)}.", remedy="Write one SELECT in the SQL of ClickHouse."
        ) from None
    if len(trees) != 1:
        raise QueryRefusedError("The query is more than one statement.", remedy="Write one SELECT, without semicolon.")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        word = _WORD.search(text)
        shown = word[0].upper() if word else "This"
        raise QueryRefusedError(f"{shown:.40} is not a SELECT.", remedy="Only SELECT reads datasets.")
    with shallow():
        _check_depth(tree)
        relations = 0
        for node in tree.walk():
            _check_node(node)
            relations += isinstance(node, exp.Table | exp.Query | exp.Join)
        if relations > MAX_RELATIONS:
            raise QueryRefusedError(
                f"The query has more than {MAX_RELATIONS} tables, joins and subqueries.", remedy="Take it apart."
            )
        check_words(sql.to_text(tree.copy()))
    return tree


@contextmanager
def shallow() -> Generator[None]:
    """The parser, the printer and we walk trees by recursion: what is too deep for that is refused."""
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
    """Counted on the tokens, before the parser: its cost must not grow with nesting."""
    tokens = sqlglot.tokenize(text, read="clickhouse")
    if len(tokens) > MAX_TOKENS:
        raise QueryRefusedError(f"The query has more than {MAX_TOKENS:,} words.", remedy="Take it apart.")
    open_levels = [0]  # per open bracket: how often the parser goes back inside of it
    before = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENS or kind is TokenType.CASE:
            open_levels.append(open_levels[-1] + (before in _TYPE_NAMES))
        elif (kind in _CLOSES or kind is TokenType.END) and len(open_levels) > 1:
            open_levels.pop()
        elif kind is TokenType.ARROW or (kind in _TYPE_NAMES and before in _TYPE_NAMES):
            open_levels[-1] += 1
        if len(open_levels) > MAX_DEPTH or open_levels[-1] > MAX_BACKTRACKS:
            raise _too_deep()
        before = kind


def _where(error: Exception) -> str:
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
        for key, words in _STRUCTURE.items():
            if node.args.get(key):
                raise QueryRefusedError(f"A query cannot hold {words}.", remedy="Leave it out.")
    elif isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
        raise QueryRefusedError("A query cannot hold parameters.", remedy="Write the values out.")
    elif isinstance(node, exp.In):
        _check_in(node)
    elif isinstance(node, exp.DDL | exp.DML | exp.Command):
        raise QueryRefusedError(f"A query cannot hold {type(node).__name__.upper()}.", remedy="Write one SELECT.")
    elif isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and not isinstance(node.this, str):
        raise QueryRefusedError("The name of a function cannot be in quotes.", remedy="Write it without.")


def _check_table(node: exp.Table) -> None:
    if not isinstance(node.this, exp.Identifier):
        shown = node.this.name if isinstance(node.this, exp.Anonymous) else type(node.this).__name__.lower()
        raise QueryRefusedError(
            f"A query reads datasets by name, not from functions such as {shown:.60}.", remedy="Name a dataset."
        )
    extra = [key for key, value in node.args.items() if value and key not in ("this", "db", "alias", "joins")]
    if "sample" in extra:
        raise QueryRefusedError("A query cannot hold SAMPLE.", remedy="Leave it out.")
    alias = node.args.get("alias")
    if extra or (alias is not None and alias.args.get("columns")):
        raise QueryRefusedError(
            f"The dataset {table_name(node):.60} cannot be read in this way.", remedy="Write its name, and an alias."
        )


def _check_in(node: exp.In) -> None:
    """`x IN name`: ClickHouse takes the name for a table."""
    given = node.expressions
    alone = given[0] if len(given) == 1 else None
    while isinstance(alone, exp.Paren):
        alone = alone.this
    if node.args.get("field") is not None or node.args.get("unnest") is not None or isinstance(alone, exp.Column):
        raise QueryRefusedError(
            "IN takes a list of values or a SELECT.", remedy="For a list in a column use has(column, value)."
        )


def table_name(node: exp.Table) -> str:
    """The dataset that a table of the tree names: name, or dag.name."""
    return ".".join(part.name for part in node.parts)


def check_words(text: str) -> None:
    """Refuse a written query with any word that is not on the lists."""
    tokens = sqlglot.tokenize(text, read="clickhouse")
    for index, token in enumerate(tokens):
        called = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
        if token.token_type is TokenType.IDENTIFIER and called:
            raise QueryRefusedError(f"{token.text:.60} cannot be called.", remedy="Quotes are for names of columns.")
        if token.token_type in _PLAIN or not _WORD.match(token.text):
            if token.token_type in (TokenType.L_BRACE, TokenType.HEREDOC_STRING, TokenType.SEMICOLON):
                raise QueryRefusedError("A query cannot hold { } or ;.", remedy="Write the values out.")
            continue
        word = token.text.lower()
        known = word in KEYWORDS or word in TYPES or (called and is_function(word))
        # Keywords may be several words in one token: GROUP BY, UNION ALL.
        if not known and not all(part in KEYWORDS for part in word.split()):
            what = f"The function {token.text:.60} is" if called else f"{token.text:.60} is"
            raise QueryRefusedError(f"{what} not allowed in a query.", remedy="Use plain functions of values.")


def references(tree: exp.Expr) -> Iterator[tuple[exp.Table, bool]]:
    """Every table of the tree, with whether it is a name that the query itself defines (WITH)."""
    yield from _references(tree, frozenset())


def _references(node: exp.Expr, defined: frozenset[str]) -> Iterator[tuple[exp.Table, bool]]:
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        for part in with_.expressions:
            inside = defined | {part.alias} if with_.args.get("recursive") and not part.args.get("scalar") else defined
            yield from _references(part.this, inside)
            if not part.args.get("scalar"):
                defined |= {part.alias}
    if isinstance(node, exp.Table):
        yield node, not node.args.get("db") and node.name in defined
    for child in node.iter_expressions():
        if child is not with_:
            yield from _references(child, defined)


def datasets_read(text: str) -> frozenset[str]:
    """The names of the datasets that a query reads."""
    with shallow():
        return frozenset(table_name(table) for table, own in references(parse_select(text)) if not own)
