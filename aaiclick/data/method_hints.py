"""Hints for names of methods and arguments that polars, pandas and SQL have, and this package has not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, Signature

from aaiclick.data.errors import UnknownMethodError, find_similar

_SORT_TOP = 'sort("x", descending=True).head(n)'
_DATA = "await obj.data()"
_EXPORT = 'await obj.export("file.csv")'
_FUNCTIONS = "expressions, or map(function, obj) over chunks"
OBJECT_HINTS = {
    "groupby": 'group_by("k")', "groupBy": 'group_by("k")', "agg": 'select(col("x").sum())', "query": 'filter("x > 1")',
    "aggregate": 'select(col("x").sum())', "sort_values": 'sort("x")', "sort_by": 'sort("x")', "order_by": 'sort("x")',
    "orderBy": 'sort("x")', "merge": 'join(other, "k", how="left")', "merge_asof": 'join_asof(other, "t")',
    "assign": 'with_columns(y=col("x") + 1)', "with_column": 'with_columns(y=col("x") + 1)',
    "withColumn": 'with_columns(y=col("x") + 1)', "mutate": 'with_columns(y=col("x") + 1)',
    "drop_duplicates": "distinct()", "dropDuplicates": "distinct()", "dropna": "drop_nulls()", "melt": "unpivot(…)",
    "append": "insert(value), or concat(other)", "vstack": "concat(other)", "unionAll": "concat(other)",
    "extend": "concat(other)", "except_": "difference(other)", "pivot_table": "pivot(…)",
    "resample": "group_by_time(…)", "group_by_dynamic": "group_by_time(…)", "upsample": "group_by_time(…)",
    "nlargest": _SORT_TOP, "top_k": _SORT_TOP, "nsmallest": 'sort("x").head(n)', "bottom_k": 'sort("x").head(n)',
    "iterrows": "await obj.rows()", "itertuples": "await obj.rows()", "iter_rows": "await obj.rows()",
    "to_dicts": "await obj.rows()", "tolist": _DATA, "to_list": _DATA, "values": _DATA, "collect_async": _DATA,
    "compute": _DATA, "fetch": _DATA, "execute": _DATA, "item": _DATA, "to_csv": _EXPORT, "write_csv": _EXPORT,
    "to_parquet": _EXPORT, "write_parquet": _EXPORT, "to_json": _EXPORT, "write_json": _EXPORT, "write_ndjson": _EXPORT,
    "to_excel": _EXPORT, "sink_parquet": _EXPORT, "loc": 'filter(col("x") > 1), or obj[10:20]', "iloc": "obj[10:20]",
    "at": "filter(…)", "iat": "obj[10:20]", "apply": _FUNCTIONS, "applymap": _FUNCTIONS, "map_rows": _FUNCTIONS,
    "map_batches": _FUNCTIONS, "pipe": _FUNCTIONS, "map_elements": _FUNCTIONS, "transform": _FUNCTIONS,
    "dtypes": "schema", "dtype": "schema", "info": "schema", "height": "await obj.count()", "size": "await obj.count()",
    "len": "await obj.count()", "width": "len(obj.columns)", "lazy": "Objects as they are: they are lazy",
    "set_index": "the rows as they are: there is no index", "reset_index": "with_row_index()",
    "hstack": "with_columns(…)", "withColumnRenamed": "rename({…})", "T": "pivot(…)", "transpose": "pivot(…)",
    "glimpse": "show()", "to_frame": "select(…)", "first_row": "head(1)",
}  # fmt: skip
"""What to use instead of methods of frames."""

EXPRESSION_HINTS = {
    "fillna": "fill_null(value)", "isna": "is_null()", "isnull": "is_null()", "notna": "is_not_null()",
    "notnull": "is_not_null()", "is_in": "isin([…])", "astype": "cast(int)", "n_unique": "nunique()",
    "approx_n_unique": "approx_nunique()", "ffill": "forward_fill()", "bfill": "backward_fill()",
    "pad": "forward_fill()", "is_between": "between(low, high)", "cumsum": "cum_sum()", "cummax": "cum_max()",
    "cummin": "cum_min()", "cumcount": "cum_count()", "cum_prod": "cum_sum() of log()", "implode": "collect()",
    "arg_min": "argmin()", "arg_max": "argmax()", "idxmin": "argmin()", "idxmax": "argmax()",
    "where": "if_else(condition, then, otherwise)", "mask": "if_else(condition, then, otherwise)",
    "when": "if_else(condition, then, otherwise)", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "is_infinite": "~ of is_finite()", "percentile": "quantile(0.5)", "rolling_mean": 'rolling("mean", 3)',
    "rolling_sum": 'rolling("sum", 3)', "rolling_max": 'rolling("max", 3)', "rolling_min": 'rolling("min", 3)',
    "rolling_std": 'rolling("std", 3)', "lag": "shift(1)", "lead": "shift(-1)", "value_counts": 'group_by("x").len()',
    "log1p": 'math("log1p")', "sin": 'math("sin")', "cos": 'math("cos")', "label": "alias(…)",
    "as_": "alias(…)", "mul": "*", "add": "+", "sub": "-", "truediv": "/", "map_elements": _FUNCTIONS,
    "apply": _FUNCTIONS, "map_batches": _FUNCTIONS, "len": "length(), .str.length() or .list.len()",
    "sort": "sort(…) of the Object", "head": "head(n) of the Object", "variance": "var()", "stddev": "std()",
}  # fmt: skip
"""What to use instead of methods of expressions and series."""

GROUP_HINTS = {
    "size": "len()", "data": "agg(…) before data()", "apply": _FUNCTIONS, "aggregate": "agg(…)", "first": "head(1)",
    "filter": "having(…)", "nunique": 'agg(col("x").nunique())', "median": 'agg(col("x").median())', "last": "tail(1)",
    "std": 'agg(col("x").std())', "var": 'agg(col("x").var())', "transform": 'col("x").sum().over("k")',
    "select": "agg(…)",
}  # fmt: skip
TEXT_HINTS = {
    "to_uppercase": "upper()", "to_lowercase": "lower()", "len": "length()", "len_chars": "length()",
    "len_bytes": "byte_length()", "strip_chars": "strip()", "trim": "strip()", "startswith": "starts_with(text)",
    "endswith": "ends_with(text)", "replace_all": "replace(old, new), or replace_regex(pattern, new)",
    "match": "matches(pattern)", "fullmatch": "matches('^…$')", "findall": "extract_all(pattern)",
    "zfill": 'pad_start(n, "0")', "count": "count_matches(pattern)", "rjust": "pad_start(n)", "ljust": "pad_end(n)",
    "capitalize": "title()", "to_datetime": "strptime(format), or cast(datetime)",
    "to_date": "strptime(format), or cast(date)", "cat": "concat(…)", "get": "slice(n, 1)", "to_integer": "cast(int)",
    "to_decimal": 'cast("Decimal(18, 2)")', "index": "find(text)", "rsplit": "split(text)", "head": "slice(0, n)",
    "tail": "slice(-n)", "isdigit": r"matches(r'^\d+$')",
}  # fmt: skip
DATE_HINTS = {
    "dayofweek": "weekday()", "day_of_week": "weekday()", "dayofyear": "ordinal_day()", "day_of_year": "ordinal_day()",
    "floor": "truncate(every)", "round": "truncate(every)", "to_string": "strftime(format)",
    "format": "strftime(format)", "convert_time_zone": "in_zone(zone)", "tz_convert": "in_zone(zone)",
    "timestamp": "epoch()", "isocalendar": "week()", "offset_by": "add(days=1)",
    "tz_localize": "cast(\"DateTime64(6, 'Europe/Berlin')\") of the column",
    "replace_time_zone": "cast(\"DateTime64(6, 'Europe/Berlin')\") of the column", "days": 'total("days")',
    "total_days": 'total("days")', "total_hours": 'total("hours")', "total_minutes": 'total("minutes")',
    "total_milliseconds": 'total("milliseconds")', "weekofyear": "week()",
}  # fmt: skip
LIST_HINTS = {
    "lengths": "len()", "eval": "map(function)", "apply": "map(function)", "head": "slice(0, n)", "tail": "slice(-n)",
    "n_unique": "unique().list.len()", "explode": "explode(…) of the Object", "arg_max": "index_of(…)",
    "append": "concat(…)",
}  # fmt: skip
ARGUMENT_HINTS = {
    "ascending": "descending=", "reverse": "descending=", "nulls_last": "nulls_first=", "na_position": "nulls_first=",
    "inplace": "the returned Object", "frac": "fraction=", "random_state": "seed=",
    "default": "otherwise=, or default= of replace", "regex": "matches(…) and replace_regex(…)",
    "literal": "matches(…) and replace_regex(…)", "method": "its own methods", "by": "names without by=",
    "columns": "names without columns=", "index": "names without index=", "keep": "sort(…) before it",
    "subset": "names without subset=", "dtype": "cast(…)", "min_periods": "windows as they are: all rows so far",
    "min_samples": "windows as they are: all rows so far", "periods": "rows=", "strict": "try_cast(…)", "n_rows": "n=",
}  # fmt: skip
"""What to use instead of arguments."""


def unknown_method(
    owner: str, name: str, hints: Mapping[str, str], groups: Mapping[str, type] | None = None, names: Iterable[str] = ()
) -> UnknownMethodError:
    """Return the error for a method that does not exist; `groups` are the classes of `.str`, `.dt` and so on."""
    what = f"{owner} have no {name!r}."
    if name in hints:
        return UnknownMethodError(what, remedy=f"Use {hints[name]}.")
    group = next((group for group, methods in (groups or {}).items() if name in vars(methods)), None)
    if group is not None:
        return UnknownMethodError(what, remedy=f"Use .{group}.{name}(…).")
    similar = find_similar(name, (other for other in names if not other.startswith("_")))
    return UnknownMethodError(what, remedy=f"Did you mean {similar!r}?" if similar else "dir(…) lists what there is.")


def explain_call(method: str, signature: Signature, args: tuple[object, ...], named: dict[str, object]) -> str | None:
    """Return what is wrong with the arguments of a call and the remedy, or None if they fit the signature."""
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        names = [p.name for p in parameters if p.kind is not Parameter.VAR_POSITIONAL]
        accepted = f"Its arguments are {', '.join(names)}." if names else "It takes none."
        unknown = next((name for name in named if name not in names), None)
        if unknown is not None:
            hint = f"Use {ARGUMENT_HINTS[unknown]}." if unknown in ARGUMENT_HINTS else accepted
            return f"{method}(…) has no argument {unknown}=.\n{hint}"
        return f"{method}(…): {error}.\n{accepted}"
    return None
