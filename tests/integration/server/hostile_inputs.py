"""Hostile and large queries, DAG files, bodies, messages, schemas, forms and results, by what is excessive in them."""

from __future__ import annotations

import json
from typing import Any


def nested(opening: str, inside: str, closing: str, count: int) -> str:
    return opening * count + inside + closing * count


QUERIES = {
    "nested cross joins": "SELECT * FROM " + nested("(SELECT * FROM ", "d", " CROSS JOIN d AS b)", 40),
    "stars": "SELECT " + ",".join("*" * 9000) + " FROM d",
    "joins": "SELECT 1 AS x FROM d" + "".join(f" JOIN d AS d{number} ON d{number}.a = d.a" for number in range(1000)),
    "dots": "SELECT " + ".".join(["a"] * 9000) + " FROM d",
    "nots": "SELECT a FROM d WHERE " + "NOT " * 9000 + "a",
    "brackets": "SELECT " + nested("(", "a", ")", 9000) + " FROM d",
    "closing brackets": "SELECT " + ")" * 90_000,
    "in list": "SELECT a FROM d WHERE a IN (" + ",".join(map(str, range(9_000))) + ")",
    "unions": " UNION ALL ".join(["SELECT a FROM d"] * 3000),
    "doubling names": "WITH t0 AS (SELECT a FROM d), "
    + ", ".join(
        f"t{number} AS (SELECT * FROM t{number - 1} AS x CROSS JOIN t{number - 1} AS y)" for number in range(1, 40)
    )
    + " SELECT * FROM t39",
    "lambdas": "SELECT " + nested("arrayMap(x -> ", "a", ",[1])", 30) + " FROM d",
    "types before brackets": "SELECT " + nested("date (", "a", ")", 30) + " FROM d",
    "types in a row": "SELECT " + nested("date [", "a", "][1]", 30) + " FROM d",
    "cases": "SELECT " + nested("CASE WHEN ", "a", " THEN 1 END", 30) + " FROM d",
    "operators": "SELECT " + "+".join(["a"] * 9000) + " FROM d",
    "a long name": "SELECT " + "a" * 99_000 + " FROM d",
    "a long text": "SELECT '" + "a" * 99_000 + "' AS x FROM d",
    "comments": "SELECT a FROM d " + "/* x */" * 10_000,
    "quotes": "SELECT a FROM d WHERE a = '" + "''" * 40_000,
    "a pattern": "SELECT COLUMNS('(a+)+$') FROM (SELECT 1 AS " + "a" * 60 + "b)",
    "semicolons": ";" * 90_000,
}
TEXTS = {
    "aliases": "a0: &a0 [1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"a{number}: &a{number} [{','.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 9)),
    "values": "a: [" + "1," * 100_000 + "]",
    "deep flow": "[" * 100_000,
    "deep blocks": "".join(" " * number + "a:\n" for number in range(600)),
    "a long scalar": "a: " + "x" * 250_000,
    "folded lines": "a: >\n" + " x\n" * 80_000,
    "anchors": "".join(f"- &a{number} x\n" for number in range(19_000)),
    "an open quote": 'a: "' + "x\n" * 120_000,
    "a long operator": "name: x\njobs:\n  - {name: a, operator: " + "q" * 200_000 + ", activation: source}\n",
    "many errors": "name: x\njobs:\n" + "".join(f"  - {{nbme{number}: 1}}\n" for number in range(2000)),
    "many queries": "name: x\njobs:\n"
    + "".join(
        f"  - {{name: a{number}, operator: sql, activation: reactive, outputs: [o{number}], "
        f"config: {{query: 'select * from (select {','.join(['*'] * 60)} from zz)'}}}}\n"
        for number in range(150)
    ),
    "a query in a DAG": "name: x\njobs:\n  - name: a\n    operator: sql\n    activation: reactive\n    outputs: [o]\n"
    "    config: {query: '" + QUERIES["nested cross joins"] + "'}\n",
}
BODIES = {
    "closing brackets": b"]" * 7_900_000,
    "opening brackets": b"[" * 7_900_000,
    "brackets in turns": b"[]" * 3_900_000,
    "objects": b"[" + b"{}," * 2_600_000 + b"{}]",
    "numbers": b"[" + b"1," * 3_900_000 + b"1]",
    "digits": b"[" + b"9" * 7_900_000 + b"]",
    "long numbers": b"[" + b",".join([b"9" * 639] * 12_000) + b"]",
    "escapes": b'{"name": "' + b"\\u0041" * 1_300_000 + b'"}',
    "backslashes": b'{"name": "' + b"\\\\" * 3_900_000 + b'"}',
    "quotes": b'"' * 7_900_000,
    "unknown fields": b"{" + b",".join(b'"k%d":1' % number for number in range(200_000)) + b"}",
    "values to the limit": b'{"name": [' + b"1," * 249_000 + b"1]}",
    "wrong items": b'{"items": [' + b"1," * 240_000 + b"1]}",
    "one long text": b'{"name": "' + b"a" * 7_900_000 + b'"}',
    "text that is no ASCII": b'{"name": "' + "😀".encode() * 1_900_000 + b'"}',
}


def call_tool(tool: str, **arguments: object) -> bytes:
    """A message of an AI assistant."""
    call = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()


MESSAGES = {
    "a large body": call_tool("read_log", task_id="1" * 7_900_000),
    "a long text": call_tool("query_datasets", sql="x" * 990_000),
    "JSON in a text": call_tool("read_log", task_id="[" + "{}," * 330_000 + "{}]"),
    "numbers in a text": call_tool("read_log", task_id="[" + "1," * 490_000 + "1]"),
    "unknown arguments": call_tool("read_log", **{f"a{number}": "[" + "{}," * 400 + "{}]" for number in range(700)}),
    "many objects": json.dumps({f"k{number}": {} for number in range(120_000)}).encode(),
    "no message": b'{"a": [' + b"1," * 900 + b'"' + b"x" * 990_000 + b'"]}',
}


REFERENCE = {"$ref": "#/$defs/Tree"}
TREE = {"anyOf": [REFERENCE, REFERENCE]}
TEXTS_OF_CHOICES = [f"choice {number}" for number in range(3_000)]
SCHEMAS: dict[str, tuple[dict[str, Any], object]] = {
    "references to itself": (REFERENCE, 1),
    "unions of choices": ({"items": {"anyOf": [*([{"enum": TEXTS_OF_CHOICES}] * 40), {}]}}, ["x"] * 100_000),
    "choices that are objects": ({"items": {"enum": [{"a": list(range(2_000))}]}}, [{"a": [1] * 50}] * 2_000),
    "unions of objects": ({"anyOf": [{"properties": {"a": {}}}] * 3_000}, {f"k{n}": 1 for n in range(30_000)}),
    "required names": ({"items": {"required": TEXTS_OF_CHOICES}}, [{}] * 50_000),
    "a long name": ({"additionalProperties": {"items": {"type": "integer"}}}, {"n" * 3_000_000: [1] * 100_000}),
    "long dates": ({"anyOf": [{"type": "string", "format": "date"}] * 3_000}, "1" * 5_000_000),
    "many mistakes": ({"items": {"anyOf": [{"type": "integer"}] * 3_000}}, ["x" * 2_000] * 3_000),
    "a long list": ({"type": "array", "items": {"type": "integer"}}, list(range(120_000))),
}


UNIQUE = "UNIQUE"
"""Is replaced in each form: compiled patterns are cached."""

PATTERNS = {f"f{number}": {"type": "string", "pattern": f"\\w{{{number}}}{UNIQUE}"} for number in range(40, 90)}
FORMS: dict[str, dict[str, Any]] = {
    "patterns": {"properties": PATTERNS},
    "a pattern": {"properties": {"a": {"type": "string", "pattern": r"\w" * 200 + UNIQUE}}},
    "many fields": {"properties": {f"f{number}": {"type": "string"} for number in range(5_000)}},
    "many choices": {"properties": {"f": {"enum": list(range(100_000))}}},
    "the most choices": {"properties": {f"f{number}": {"enum": list(range(20))} for number in range(50)}},
    "malformed": {"properties": {"f": 1}},
}


RESULTS = {
    "an array": "SELECT range(20000000) AS x",
    "arrays in arrays": "SELECT arrayMap(x -> range(1000), range(10000)) AS x",
    "nulls": "SELECT arrayWithConstant(9000000, NULL) AS x",
    "empty tuples": "SELECT arrayMap(x -> tuple(), range(9000000)) AS x",
    "rows": "SELECT arrayJoin(range(9000000)) AS x",
    "a map": "SELECT mapFromArrays(range(3000000), range(3000000)) AS x",
    "long texts": "SELECT arrayMap(x -> repeat('x', 1000000), range(200)) AS x",
    "one long text": "SELECT arrayStringConcat(arrayMap(x -> repeat('x', 1000000), range(20))) AS x",
}
