"""Arrays, maps, structs and JSON text. Positions count from 0, negative ones from the end."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.arithmetic import are_comparable
from aaiclick.data.expressions.functions.conditional import common_supertype
from aaiclick.data.expressions.functions.registry import (
    INTEGER,
    LIST,
    MAP,
    NUMBER,
    STRUCT,
    TEXT,
    Build,
    NotDefinedError,
    Params,
    Result,
    Types,
    any_nullable,
    check_types,
    define_function,
)
from aaiclick.data.types import BOOL, FLOAT64, INT64, STRING, UINT32, DataType, array_of

JSON_TYPES = {"string": STRING, "int": INT64, "float": FLOAT64, "bool": BOOL}


def _element_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST, INTEGER)
    return types[0].element.as_nullable()


def _build_get(args: list[Expression], types: Types, params: Params) -> Expression:
    index = sql.call("toInt64", args[1])
    position = sql.binary("+", index, sql.call("toInt8", sql.binary(">=", index.copy(), sql.number(0))))
    element = sql.call("arrayElement", args[0], position)
    dtype = _element_type(types, params)
    if dtype.is_structure or not dtype.nullable:
        return element
    inside = sql.binary("<=", sql.call("abs", position.copy()), sql.call("length", args[0].copy()))
    return sql.call("if", inside, sql.call("toNullable", element), sql.null())


def _list_contains_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    if not are_comparable(types[0].element, types[1]):
        raise NotDefinedError(f"{types[1]} cannot be compared with the elements of {types[0]}")
    return BOOL


def _same_list_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    return types[0]


def _distinct_list_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    return array_of(types[0].element.as_required())


def _list_number_type(dtype: DataType | None) -> Result:
    def result(types: Types, params: Params) -> DataType:
        check_types(types, LIST)
        check_types((types[0].element,), NUMBER)
        return (dtype or types[0].element).as_nullable()

    return result


def _build_reduce(clickhouse: str, dtype: DataType | None) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        element = types[0].element
        out = (dtype or element).as_nullable()
        values = args[0]
        if element.nullable:
            values = sql.cast(
                sql.call("arrayFilter", _build_lambda("isNotNull"), values), array_of(element.as_required())
            )
        tree = sql.call(clickhouse, values)
        return sql.cast(sql.call("if", sql.call("empty", values.copy()), sql.null(), tree), out)

    return build


def _build_lambda(function: str) -> Expression:
    return exp.Lambda(this=sql.call(function, exp.Column(this=sql.identifier("x"))), expressions=[sql.identifier("x")])


def _build_join(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.call(
        "arrayStringConcat", sql.cast(args[0], array_of(STRING.as_nullable(types[0].element.nullable))), args[1]
    )


def _build_list_slice(args: list[Expression], types: Types, params: Params) -> Expression:
    start: int = params[0]
    length = [] if params[1] is None else [sql.number(params[1])]
    return sql.call("arraySlice", args[0], sql.number(start + 1 if start >= 0 else start), *length)


def _map_part_type(part: int) -> Result:
    def result(types: Types, params: Params) -> DataType:
        check_types(types, MAP)
        return array_of(types[0].args[part])

    return result


def _map_get_type(types: Types, params: Params) -> DataType:
    check_types(types, MAP)
    return types[0].args[1].as_nullable()


def _build_map_get(args: list[Expression], types: Types, params: Params) -> Expression:
    # arrayElement returns a default value for a missing key; return NULL instead.
    has_key = sql.call("mapContains", args[0], args[1])
    value = sql.call("arrayElement", args[0].copy(), args[1].copy())
    if types[0].args[1].is_structure:
        return value
    return sql.call("if", has_key, sql.call("toNullable", value), sql.null())


def _field_type(types: Types, params: Params) -> DataType:
    check_types(types, STRUCT)
    fields = dict(arg for arg in types[0].args if isinstance(arg, tuple))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if params[0] not in fields:
        raise NotDefinedError(f"there is no field {params[0]!r}")
    return fields[params[0]]  # pyright: ignore[reportUnknownVariableType]


def _build_field(args: list[Expression], types: Types, params: Params) -> Expression:
    names = [arg[0] for arg in types[0].args]
    return sql.call("tupleElement", args[0], sql.number(names.index(params[0]) + 1))


def _json_type(types: Types, params: Params) -> DataType:
    check_types(types, TEXT)
    return JSON_TYPES[params[0]].as_nullable()


def _build_json(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build json_get; missing keys and values of another type are NULL."""
    text, *path = args
    dtype = str(_json_type(types[:1], params))
    text = sql.call("ifNull", text, sql.string("")) if types[0].nullable else text
    return sql.call("JSONExtract", text, *path, sql.string(dtype))


def _build_array(args: list[Expression], types: Types, params: Params) -> Expression:
    element = common_supertype(types)
    return sql.call("array", *(sql.cast(arg, element) for arg in args))


def _build_int_call(clickhouse: str, nullable: bool = True) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, *args), INT64.as_nullable(nullable and any_nullable(types)))

    return build


def _index_type(types: Types, params: Params) -> DataType:
    _list_contains_type(types, params)
    return INT64


def _build_index_of(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.binary("-", sql.cast(sql.call("indexOf", *args), INT64), sql.number(1))


define_function(
    "list_len",
    lambda t, p: INT64 if LIST(t[0]) else _raise_not_defined(t),
    _build_int_call("length", nullable=False),
    "number of elements",
)
define_function("list_get", _element_type, _build_get, "the element at a position, NULL beyond the end")
define_function(
    "list_contains", _list_contains_type, lambda a, t, p: sql.call("has", *a), "whether a value is among the elements"
)
define_function(
    "list_index_of",
    _index_type,
    _build_index_of,
    "position of a value, -1 if absent",
)
define_function(
    "list_sum",
    _list_number_type(FLOAT64),
    _build_reduce("arraySum", FLOAT64),
    "sum of the elements, Float64; NULL when empty",
)
define_function("list_mean", _list_number_type(FLOAT64), _build_reduce("arrayAvg", FLOAT64), "mean of the elements")
define_function("list_min", _list_number_type(None), _build_reduce("arrayMin", None), "least element")
define_function("list_max", _list_number_type(None), _build_reduce("arrayMax", None), "greatest element")
define_function(
    "list_sort",
    _same_list_type,
    lambda a, t, p: sql.call("arrayReverseSort" if p[0] else "arraySort", a[0]),
    "elements in order",
)
define_function("list_reverse", _same_list_type, lambda a, t, p: sql.call("arrayReverse", a[0]), "elements backwards")
define_function(
    "list_unique",
    _distinct_list_type,
    lambda a, t, p: sql.call("arrayDistinct", a[0]),
    "each element once (NULL left out)",
)
define_function("list_slice", _same_list_type, _build_list_slice, "part of the array")
define_function(
    "list_join", lambda t, p: STRING if LIST(t[0]) else _raise_not_defined(t), _build_join, "elements as one string"
)
define_function(
    "array", lambda t, p: array_of(common_supertype(t)), _build_array, "an array of several values in a row"
)
define_function("map_keys", _map_part_type(0), lambda a, t, p: sql.call("mapKeys", a[0]), "keys of a map")
define_function("map_values", _map_part_type(1), lambda a, t, p: sql.call("mapValues", a[0]), "values of a map")
define_function("map_get", _map_get_type, _build_map_get, "the value of a key, NULL if absent")
define_function(
    "map_contains",
    lambda t, p: BOOL if MAP(t[0]) else _raise_not_defined(t),
    lambda a, t, p: sql.call("mapContains", *a),
    "whether a key is there",
)
define_function("field", _field_type, _build_field, "a field of a struct")
define_function("json_get", _json_type, _build_json, "a value inside JSON text by its path; NULL if absent")
define_function(
    "json_raw",
    lambda t, p: STRING.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("JSONExtractRaw", *a),
    "the JSON text at a path",
)
define_function(
    "json_has",
    lambda t, p: BOOL.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("JSONHas", *a),
    "whether the path exists",
)
define_function(
    "to_json",
    lambda t, p: STRING.as_nullable(t[0].nullable),
    lambda a, t, p: sql.call("toJSONString", a[0]),
    "the value as JSON text",
)


def _build_positions(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build a row per element with its position from 1, or with 0 for an empty array if those are kept."""
    positions = sql.call("arrayEnumerate", args[0])
    if params[0]:
        empty_marker = sql.call("array", sql.call("toUInt32", sql.number(0)))
        positions = sql.call("if", sql.call("empty", args[0].copy()), empty_marker, positions)
    return sql.call("arrayJoin", positions)


def _exploded_type(types: Types, params: Params) -> DataType:
    return types[0].element.as_nullable(types[0].element.nullable or params[0])


def _build_exploded(args: list[Expression], types: Types, params: Params) -> Expression:
    element = sql.call("arrayElement", *args)
    if not params[0] or types[0].element.is_structure:
        return element
    present = sql.binary(">", args[1].copy(), sql.number(0))
    return sql.call("if", present, sql.cast(element, _exploded_type(types, params)), sql.null())


# Names with a leading underscore are internal to the compiler.
define_function("_positions", lambda t, p: UINT32, _build_positions, "")
define_function("_element", _exploded_type, _build_exploded, "")


def _raise_not_defined(types: Types) -> DataType:
    raise NotDefinedError(f"it does not take {types[0]}")
