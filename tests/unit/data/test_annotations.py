"""Parameter annotations determine the form in which data is passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from aaiclick.data import Object, View
from aaiclick.data.io.argument_conversion import argument_form, list_argument_forms

if TYPE_CHECKING:
    from nowhere import Unknown


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        (Object, "object"), (View, "object"), (Object | None, "object"), (list[Object], "object"), (Any, "object"),
        (dict[str, Any], "value"), (float, "value"), (int | None, "value"), (list[float], "value"), (dict, "value"),
        (Mapping[str, list[int]], "value"), (Sequence[int], "value"), (list[dict[str, int]], "rows"),
        (pa.Table, "arrow"), (pa.RecordBatch, "batch"), (pd.DataFrame, "pandas"), (pl.DataFrame | None, "polars"),
        (Annotated[float, "km"], "value"), (object, "unknown"), ("pl.DataFrame", "polars"), ("Object", "object"),
    ],
)  # fmt: skip
def test_annotation_determines_form(annotation, form):
    assert argument_form(annotation) == form


def test_unresolvable_annotations_are_ignored():
    def function(a: Unknown, b: pa.Table, c, d: Object): ...

    assert list_argument_forms(function)["c"] == list_argument_forms(function)["d"] == "object"
