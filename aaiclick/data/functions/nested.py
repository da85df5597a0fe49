"""Arrays, maps, structs and JSON text. Positions count from 0, negative ones from the end."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from sqlglot import exp

from aaiclick.data import sql
from aaiclick.data.functions.arithmetic import comparable
from aaiclick.data.functions.conditional import common
from aaiclick.data.functions.registry import (
    INTEGER,
    LIST,
    MAP,
    NUMBER,
    STRUCT,
    TEXT,
    NotDefinedError,
    Params,
    Types,
    any_nullable,
    check,
    define,
)
from aaiclick.data.sql import Expression
from aaiclick.data.types import BOOL, FLOAT64, INT64, STRING, UINT32, DataType, array_of

JSON_TYPES = {"string": STRING, "int": INT64, "float": FLOAT64, "bool": BOOL}


def _element(types: Types, params: Params) -> DataType:
    check(types, LIST, INTEGER)
    return types[0].element.as_nullable()


def _get(args: list[Expression], types: Types, params: Params) -> Expression:
    index = sql.call("toInt64", args[1])
    place = sql.binary("+", index, sql.call("toInt8", sql.binary(">=", index.copy(), sql.number(0))))
    element = sql.call("arrayElement", args[0], place)
    if not _element(types, params).nullable:
        return element
    inside = sql.binary("<=", sql.call("abs", place.copy()), sql.call("length", args[0].copy()))
    return sql.call("if", inside, sql.call("toNullable", element), sql.null())


def _list_contains(types: Types, params: Params) -> DataType:
    check(types, LIST)
    if not comparable(types[0].element, types[1]):
        raise NotDefinedError(f"{types[1]} does not compare with the elements of {types[0]}")
    return BOOL


def _list_to_list(types: Types, params: Params) -> DataType:
    check(types, LIST)
    return types[0]


def _distinct_list(types: Types, params: Params) -> DataType:
    check(types, LIST)
    return array_of(types[0].element.required())


def _number_of_list(kind: DataType | None) -> object:
    def result(types: Types, params: Params) -> DataType:
        check(types, LIST)
        check((types[0].element,), NUMBER)
        return (kind or types[0].element).as_nullable()

    return result


def _reduce(clickhouse: str, kind: DataType | None) -> object:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        element = types[0].element
        out = (kind or element).as_nullable()
        values = args[0]
        if element.nullable:
            values = sql.cast(sql.call("arrayFilter", _lambda("isNotNull"), values), array_of(element.required()))
        tree = sql.call(clickhouse, values)
        return sql.cast(sql.call("if", sql.call("empty", values.copy()), sql.null(), tree), out)

    return build


def _lambda(function: str) -> Expression:
    return exp.Lambda(this=sql.call(function, exp.Column(this=sql.name("x"))), expressions=[sql.name("x")])


def _join(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.call(
        "arrayStringConcat", sql.cast(args[0], array_of(STRING.as_nullable(types[0].element.nullable))), args[1]
    )


def _list_slice(args: list[Expression], types: Types, params: Params) -> Expression:
    start: int = params[0]
    length = [] if params[1] is None else [sql.number(params[1])]
    return sql.call("arraySlice", args[0], sql.number(start + 1 if start >= 0 else start), *length)


def _map_part(part: int) -> object:
    def result(types: Types, params: Params) -> DataType:
        check(types, MAP)
        return array_of(types[0].args[part])

    return result


def _map_get(types: Types, params: Params) -> DataType:
    check(types, MAP)
    return types[0].args[1].as_nullable()


def _build_map_get(args: list[Expression], types: Types, params: Params) -> Expression:
    # arrayElement of a missing key gives a default value: NULL is honest.
    found = sql.call("mapContains", args[0], args[1])
    value = sql.call("arrayElement", args[0].copy(), args[1].copy())
    if types[0].args[1].is_structure:
        return value
    return sql.call("if", found, sql.call("toNullable", value), sql.null())


def _field(types: Types, params: Params) -> DataType:
    check(types, STRUCT)
    fields = dict(arg for arg in types[0].args if isinstance(arg, tuple))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if params[0] not in fields:
        raise NotDefinedError(f"there is no field {params[0]!r}")
    return fields[params[0]]  # pyright: ignore[reportUnknownVariableType]


def _build_field(args: list[Expression], types: Types, params: Params) -> Expression:
    names = [arg[0] for arg in types[0].args]
    return sql.call("tupleElement", args[0], sql.number(names.index(params[0]) + 1))


def _json(types: Types, params: Params) -> DataType:
    check(types, TEXT)
    return JSON_TYPES[params[0]].as_nullable()


def _build_json(args: list[Expression], types: Types, params: Params) -> Expression:
    """Missing keys and values of another type are NULL."""
    text, *path = args
    kind = str(_json(types[:1], params))
    text = sql.call("ifNull", text, sql.string("")) if types[0].nullable else text
    return sql.call("JSONExtract", text, *path, sql.string(kind))


def _build_array(args: list[Expression], types: Types, params: Params) -> Expression:
    element = common(types)
    return sql.call("array", *(sql.cast(arg, element) for arg in args))


def _int_of(clickhouse: str, nullable: bool = True) -> object:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, *args), INT64.as_nullable(nullable and any_nullable(types)))

    return build


def _index_type(types: Types, params: Params) -> DataType:
    _list_contains(types, params)
    return INT64


def _index_of(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.binary("-", sql.cast(sql.call("indexOf", *args), INT64), sql.number(1))


define(
    "list_len",
    lambda t, p: INT64 if LIST(t[0]) else _refuse(t),
    _int_of("length", nullable=False),
    "number of elements",
)
define("list_get", _element, _get, "the element at a position, NULL beyond the end")
define("list_contains", _list_contains, lambda a, t, p: sql.call("has", *a), "whether a value is among the elements")
define(
    "list_index_of",
    _index_type,
    _index_of,
    "position of a value, -1 if absent",
)
define(
    "list_sum", _number_of_list(FLOAT64), _reduce("arraySum", FLOAT64), "sum of the elements, Float64; NULL when empty"
)
define("list_mean", _number_of_list(FLOAT64), _reduce("arrayAvg", FLOAT64), "mean of the elements")
define("list_min", _number_of_list(None), _reduce("arrayMin", None), "least element")
define("list_max", _number_of_list(None), _reduce("arrayMax", None), "greatest element")
define(
    "list_sort",
    _list_to_list,
    lambda a, t, p: sql.call("arrayReverseSort" if p[0] else "arraySort", a[0]),
    "elements in order",
)
define("list_reverse", _list_to_list, lambda a, t, p: sql.call("arrayReverse", a[0]), "elements backwards")
define(
    "list_unique", _distinct_list, lambda a, t, p: sql.call("arrayDistinct", a[0]), "each element once (NULL left out)"
)
define("list_slice", _list_to_list, _list_slice, "part of the array")
define("list_join", lambda t, p: STRING if LIST(t[0]) else _refuse(t), _join, "elements as one string")
define("array", lambda t, p: array_of(common(t)), _build_array, "an array of several values in a row")
define("map_keys", _map_part(0), lambda a, t, p: sql.call("mapKeys", a[0]), "keys of a map")
define("map_values", _map_part(1), lambda a, t, p: sql.call("mapValues", a[0]), "values of a map")
define("map_get", _map_get, _build_map_get, "the value of a key, NULL if absent")
define(
    "map_contains",
    lambda t, p: BOOL if MAP(t[0]) else _refuse(t),
    lambda a, t, p: sql.call("mapContains", *a),
    "whether a key is there",
)
define("field", _field, _build_field, "a field of a struct")
define("json_get", _json, _build_json, "a value inside JSON text by its path; NULL if absent")
define(
    "json_raw",
    lambda t, p: STRING.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("JSONExtractRaw", *a),
    "the JSON text at a path",
)
define(
    "json_has",
    lambda t, p: BOOL.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("JSONHas", *a),
    "whether the path exists",
)
define(
    "to_json",
    lambda t, p: STRING.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("toJSONString", a[0]),
    "the value as JSON text",
)


def _positions(args: list[Expression], types: Types, params: Params) -> Expression:
    """A row per element: its position from 1, or a single 0 for an empty array that is to be kept."""
    places = sql.call("arrayEnumerate", args[0])
    if params[0]:
        nobody = sql.call("array", sql.call("toUInt32", sql.number(0)))
        places = sql.call("if", sql.call("empty", args[0].copy()), nobody, places)
    return sql.call("arrayJoin", places)


def _exploded(types: Types, params: Params) -> DataType:
    return types[0].element.as_nullable(types[0].element.nullable or params[0])


def _build_exploded(args: list[Expression], types: Types, params: Params) -> Expression:
    element = sql.call("arrayElement", *args)
    if not params[0] or types[0].element.is_structure:
        return element
    present = sql.binary(">", args[1].copy(), sql.number(0))
    return sql.call("if", present, sql.cast(element, _exploded(types, params)), sql.null())


# Names with an underscore are for the compiler only.
define("_positions", lambda t, p: UINT32, _positions, "")
define("_element", _exploded, _build_exploded, "")


def _refuse(types: Types) -> DataType:
    raise NotDefinedError(f"it does not take {types[0]}")
