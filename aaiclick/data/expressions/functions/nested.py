"""Arrays, maps, structs and JSON text. Positions count from 0, negative ones from the end."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

import math
from dataclasses import replace

from sqlglot import exp

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.aggregates import sum_type
from aaiclick.data.expressions.functions.arithmetic import canonical_float
from aaiclick.data.expressions.functions.casts import build_cast, build_checked_cast
from aaiclick.data.expressions.functions.comparisons import are_comparable
from aaiclick.data.expressions.functions.conditional import common_supertype
from aaiclick.data.expressions.functions.registry import (
    FLAT,
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
    raise_where,
)
from aaiclick.data.types import (
    BOOL,
    FLOAT64,
    INT64,
    STRING,
    UINT32,
    DataType,
    array_of,
    decimal_type,
    iter_types,
    map_inner_types,
)

VECTOR_LENGTHS = "aai_vectors"
"""Message of `throwIf` for vectors of different lengths."""

JSON_TYPES = {"string": STRING, "int": INT64, "float": FLOAT64, "bool": BOOL}


def _element_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST, INTEGER)
    return replace(types[0].element, nullable=True)


def _build_get(args: list[Expression], types: Types, params: Params) -> Expression:
    index = sql.call("toInt64", args[1])
    position = sql.binary("+", index, sql.call("toInt8", sql.binary(">=", index.copy(), sql.number(0))))
    element = sql.call("arrayElement", args[0], position)
    inside = sql.binary("<=", sql.call("abs", position.copy()), sql.call("length", args[0].copy()))
    return _null_unless(inside, element, types[0].element)


def _null_unless(condition: Expression, value: Expression, dtype: DataType) -> Expression:
    """Build a value, or NULL; ClickHouse has a default where there is no element."""
    if dtype.is_nullable_structure:
        return value
    if dtype.is_structure:
        return sql.call("if", condition, sql.call("array", value), sql.call("array"))
    return sql.call("if", condition, sql.call("toNullable", value), sql.null())


def _list_contains_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    if not are_comparable(types[0].element, types[1]):
        raise NotDefinedError(f"{types[1]} cannot be compared with the elements of {types[0]}")
    element, value = types[0].element, types[1]
    if (value.is_float and element.is_decimal) or (value.is_decimal and element.is_float):
        raise NotDefinedError("floats are not looked up among Decimals: cast one side")
    return BOOL


def _same_list_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    return types[0]


def _distinct_list_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    return array_of(types[0].element.as_required())


def _check_number_list(types: Types) -> DataType:
    """Return the type of the elements."""
    check_types(types, LIST)
    check_types((types[0].element,), NUMBER)
    return types[0].element.as_required()


def _list_sum_type(types: Types, params: Params) -> DataType:
    return sum_type((_check_number_list(types),), ()).as_nullable()


def _list_extreme_type(types: Types, params: Params) -> DataType:
    check_types(types, LIST)
    check_types((types[0].element,), FLAT)
    return types[0].element.as_nullable()


def _list_mean_type(types: Types, params: Params) -> DataType:
    _check_number_list(types)
    return FLOAT64.as_nullable()


def _present_values(args: list[Expression], types: Types) -> Expression:
    element = types[0].element
    if not element.nullable:
        return args[0]
    return sql.cast(sql.call("arrayFilter", _build_lambda("isNotNull"), args[0]), array_of(element.as_required()))


def _null_if_empty(values: Expression, tree: Expression) -> Expression:
    return sql.call("if", sql.call("empty", values.copy()), sql.null(), tree)


def _build_list_sum(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build the sum of a list; integers and wide Decimals are added in twice the width and checked."""
    element, values = types[0].element.as_required(), _present_values(args, types)
    dtype = _list_sum_type(types, params)
    if element.is_decimal:
        total = sql.call("arraySum", sql.cast(values, array_of(decimal_type(76, element.args[1]))))
        return sql.cast(_null_if_empty(values, total), dtype)
    if element.is_float:
        return sql.cast(_null_if_empty(values, sql.call("arraySum", values)), dtype)
    total = sql.call("arraySum", _build_lambda("toInt128"), values)
    return build_checked_cast(_null_if_empty(values, total), dtype)


def _build_list_mean(args: list[Expression], types: Types, params: Params) -> Expression:
    values = _present_values(args, types)
    mean = sql.call("arrayAvg", _build_lambda("toFloat64"), values)
    return sql.cast(_null_if_empty(values, mean), FLOAT64.as_nullable())


def _build_list_extreme(clickhouse: str) -> Build:
    """Build the least or greatest element; NaN counts only if there is nothing else."""

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        values, out = _present_values(args, types), _list_extreme_type(types, params)
        if not types[0].element.is_float:
            chosen = sql.call(clickhouse, values)
            if not types[0].element.is_numeric:
                order = "arraySort" if clickhouse == "arrayMin" else "arrayReverseSort"
                chosen = sql.call("arrayElement", sql.call(order, values), sql.number(1))
            return sql.cast(_null_if_empty(values, chosen), out)
        numbers = sql.call("arrayFilter", _build_lambda("isNaN", "not"), values)
        extreme = sql.call("if", sql.call("empty", numbers), sql.number(math.nan), sql.call(clickhouse, numbers.copy()))
        return sql.cast(_null_if_empty(values, extreme), out)

    return build


def _build_lambda(*functions: str) -> Expression:
    body: Expression = exp.Column(this=sql.identifier("x"))
    for function in functions:
        body = sql.call(function, body)
    return exp.Lambda(this=body, expressions=[sql.identifier("x")])


def _build_list_sort(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build a sorted list; NaN is greater than every number, NULLs are last."""
    if not params[0] or not types[0].element.is_float:
        return sql.call("arrayReverseSort" if params[0] else "arraySort", args[0])
    item = exp.Column(this=sql.identifier("x"))
    key = sql.call(
        "tuple",
        sql.call("isNull", item),
        sql.logical_not(sql.call("ifNull", sql.call("isNaN", item.copy()), sql.number(0))),
        sql.call("negate", item.copy()),
    )
    return sql.call("arraySort", exp.Lambda(this=key, expressions=[sql.identifier("x")]), args[0])


def _build_list_unique(args: list[Expression], types: Types, params: Params) -> Expression:
    if not types[0].element.is_float:
        return sql.call("arrayDistinct", args[0])
    item = exp.Column(this=sql.identifier("x"))
    canonical = exp.Lambda(this=canonical_float(item, types[0].element), expressions=[sql.identifier("x")])
    return sql.call("arrayDistinct", sql.call("arrayMap", canonical, args[0]))


def _join_type(types: Types, params: Params) -> DataType:
    check_types(types[:1], LIST)
    check_types((types[0].element,), FLAT)
    return STRING


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
    return replace(types[0].args[1], nullable=True)


def _build_map_get(args: list[Expression], types: Types, params: Params) -> Expression:
    # arrayElement returns a default value for a missing key; return NULL instead.
    has_key = sql.call("mapContains", args[0], args[1])
    value = sql.call("arrayElement", args[0].copy(), args[1].copy())
    return _null_unless(has_key, value, types[0].args[1])


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


def _json_decoded_type(types: Types, params: Params) -> DataType:
    check_types(types, TEXT)
    if any(part.is_duration for part in iter_types(params[0])):
        raise NotDefinedError("JSON has no durations")
    return replace(_with_nullable_values(params[0]), nullable=True)


def _with_nullable_values(dtype: DataType) -> DataType:
    """Return the type with values that may be NULL, since ClickHouse reads a missing field as 0 otherwise."""
    if not dtype.is_structure:
        return dtype.as_nullable()
    required = replace(dtype, nullable=False)
    if dtype.name == "Map":
        return replace(required, args=(dtype.args[0], _with_nullable_values(dtype.args[1])))
    return map_inner_types(required, _with_nullable_values)


def _build_json_decoded(args: list[Expression], types: Types, params: Params) -> Expression:
    dtype = _json_decoded_type(types, params)
    text = sql.call("ifNull", args[0], sql.string(""))
    if not dtype.is_structure:
        return sql.call("JSONExtract", text, sql.type_name(dtype))
    value = sql.call("JSONExtract", text, sql.type_name(replace(dtype, nullable=False)))
    json_types = {"Array": ("Array",), "Map": ("Object",)}.get(dtype.name, ("Object", "Array"))
    actual = sql.call("toString", sql.call("JSONType", text.copy()))
    tests = [sql.binary("=", actual.copy(), sql.string(name)) for name in json_types]
    is_value = tests[0] if len(tests) == 1 else sql.call("or", *tests)
    return sql.call("if", is_value, sql.call("array", value), sql.call("array"))


def _build_json(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build json_get; missing keys and values of another type are NULL."""
    text, *path = args
    dtype = str(_json_type(types[:1], params))
    text = sql.call("ifNull", text, sql.string("")) if types[0].nullable else text
    return sql.call("JSONExtract", text, *path, sql.string(dtype))


def _build_array(args: list[Expression], types: Types, params: Params) -> Expression:
    element = common_supertype(types)
    return sql.call("array", *(build_cast(arg, t, element) for arg, t in zip(args, types, strict=True)))


def _build_int_call(clickhouse: str, nullable: bool = True) -> Build:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, *args), INT64.as_nullable(nullable and any_nullable(types)))

    return build


def _vector_type(types: Types, params: Params) -> DataType:
    for dtype in types:
        _check_number_list((dtype,))
    return FLOAT64.as_nullable(any(dtype.element.nullable for dtype in types))


def _build_vectors(clickhouse: str) -> Build:
    """Build a distance of two vectors of equal length, which is NULL if an element is."""

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        nullable = [arg for arg, dtype in zip(args, types, strict=True) if dtype.element.nullable]
        has_null = [sql.call("arrayExists", _build_lambda("isNull"), arg.copy()) for arg in nullable]
        vectors = [sql.call("arrayMap", _build_lambda("assumeNotNull", "toFloat64"), arg.copy()) for arg in args]
        differ = raise_where(sql.binary("!=", *(sql.call("length", arg) for arg in args)), VECTOR_LENGTHS)
        distance = sql.cast(sql.call(clickhouse, *vectors), FLOAT64)
        checked = sql.call("if", differ, sql.number(math.nan), distance)
        return sql.call("if", sql.call("or", *has_null, sql.number(0)), sql.null(), checked) if has_null else checked

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
    _list_sum_type,
    _build_list_sum,
    "sum of the elements; NULL when empty",
)
define_function("list_mean", _list_mean_type, _build_list_mean, "mean of the elements")
define_function("list_min", _list_extreme_type, _build_list_extreme("arrayMin"), "least element")
define_function("list_max", _list_extreme_type, _build_list_extreme("arrayMax"), "greatest element")
define_function(
    "list_sort",
    _same_list_type,
    _build_list_sort,
    "elements in order; NaN is greater than every number, NULL is last",
)
define_function("list_reverse", _same_list_type, lambda a, t, p: sql.call("arrayReverse", a[0]), "elements backwards")
define_function(
    "list_unique",
    _distinct_list_type,
    _build_list_unique,
    "each element once (NULL left out)",
)
define_function("list_slice", _same_list_type, _build_list_slice, "part of the array")
define_function("list_join", _join_type, _build_join, "elements as one string")
define_function(
    "array", lambda t, p: array_of(common_supertype(t)), _build_array, "an array of several values in a row"
)
for _name, _clickhouse, _doc in (
    ("cosine_distance", "cosineDistance", "cosine distance of two vectors"),
    ("l2_distance", "L2Distance", "Euclidean distance of two vectors"),
    ("dot_product", "arrayDotProduct", "dot product of two vectors"),
):
    define_function(_name, _vector_type, _build_vectors(_clickhouse), _doc)
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
    "json_decode",
    _json_decoded_type,
    _build_json_decoded,
    "JSON text as a type; NULL if it does not fit, also a value inside",
)
define_function(
    "json_raw",
    lambda t, p: STRING.as_nullable(),
    lambda a, t, p: sql.call("nullIf", sql.call("JSONExtractRaw", *a), sql.string("")),
    "the JSON text at a path, NULL if there is none",
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
# A list, struct or map that may be NULL is a key as text, which can be NULL and joins with nothing then.
define_function("_structure_key", lambda t, p: STRING, lambda a, t, p: sql.call("toString", a[0]), "")
define_function("_positions", lambda t, p: UINT32, _build_positions, "")
define_function("_element", _exploded_type, _build_exploded, "")


def _raise_not_defined(types: Types) -> DataType:
    raise NotDefinedError(f"it does not take {types[0]}")
