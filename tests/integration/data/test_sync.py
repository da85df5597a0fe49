"""The synchronous API."""

from __future__ import annotations

import signal
import threading

import polars as pl
import pyarrow as pa
import pytest

from aaiclick.data import sync
from aaiclick.data.errors import ColumnNotFoundError, DataTypeError, NoContextError, StaleObjectError
from aaiclick.data.sync import col


@pytest.fixture
def waiting(clickhouse_endpoint):
    with sync.DataContext(clickhouse_endpoint) as context:
        yield context


def test_sync_objects_return_results(waiting, tmp_path):
    obj = sync.create_object_from_value({"a": [3, 1, 2], "s": ["x", "y", "x"]}, name="kept")
    assert (obj["a"] + 1).data() == [4, 2, 3]
    assert (10 - obj["a"] * obj["a"]).data() == [1, 9, 6]
    assert obj["s"].str.upper().data() == ["X", "Y", "X"]
    assert obj[obj["a"] > obj["a"].mean()].rows() == [{"a": 3, "s": "x"}]
    assert obj.group_by("s").agg(n=col("a").sum()).data() == {"s": ["x", "y"], "n": [5, 1]}
    assert obj.sort("a").materialize().data() == {"a": [1, 2, 3], "s": ["y", "x", "x"]}
    assert obj.join(obj.rename({"a": "b"}), on="s").count() == 5
    assert [chunk.data()["a"] for chunk in obj.chunks(2)] == [[3, 1], [2]]
    assert obj.insert({"a": [9], "s": ["z"]}) == 4
    assert sync.insert(obj, obj.head(1)) == 5
    assert sync.list_objects() == ["kept"]
    assert sync.open_object("kept").describe().columns[0]
    assert sync.open_reference(obj.view(1, 2).to_dict()).count() == 2
    assert sync.create_object_from_file(obj.export(tmp_path / "x.csv")).count() == 5
    assert sync.create_object_from_query("SELECT 1 AS x").data() == {"x": [1]}
    sync.delete_object("kept")
    assert "lazy" in repr(obj.sort("a"))
    assert "<table" in obj._repr_html_()


def test_protocols_of_notebooks_and_data_frames(waiting):
    obj = sync.create_object_from_value({"a": [3, None], "s": ["<x>", "y"]})
    assert len(obj) == 2
    assert float(obj["a"].sum()) == int(obj["a"].max()) == 3
    with pytest.raises(TypeError, match="this is a column"):
        float(obj["a"])
    assert list(obj) == [{"a": 3, "s": "<x>"}, {"a": None, "s": "y"}]
    assert list(obj["a"]) == [3, None]
    assert pl.DataFrame(obj)["s"].to_list() == ["<x>", "y"]
    assert pa.table(obj).column("a").to_pylist() == [3, None]
    assert "&lt;x&gt;" in obj._repr_html_()
    assert {"group_by", "inner", "data"} <= set(dir(obj))
    assert obj._ipython_key_completions_() == obj.inner._ipython_key_completions_() == ["a", "s"]
    assert {"agg", "head"} <= set(dir(obj.group_by("s")))
    assert {"upper", "length"} <= set(dir(obj["s"].str))
    assert list(obj.head(0)) == []


class PlottedRows:
    """A backend of pandas that records what would be plotted."""

    __name__ = "plotted_rows"

    def __init__(self) -> None:
        self.calls = []

    def plot(self, frame, **options):
        self.calls.append((list(frame.columns), options["kind"], options.get("x")))


def test_plot_is_that_of_pandas(waiting, monkeypatch):
    import sys

    import pandas as pd

    backend = PlottedRows()
    monkeypatch.setitem(sys.modules, "plotted_rows", backend)
    obj = sync.create_object_from_value({"a": [3, 1], "b": [1, 2]})
    with pd.option_context("plotting.backend", "plotted_rows"):
        obj.plot(x="a", y="b")
        obj.plot.bar(x="a")
    assert backend.calls[0][1:] == ("line", "a")
    assert backend.calls[1] == (["a", "b"], "bar", "a")
    with pytest.raises(DataTypeError, match="too many"):
        _ = sync.create_object_from_query("SELECT number FROM numbers(100001)").plot


def test_batches_end_when_the_loop_is_left(waiting):
    obj = sync.create_object_from_query("SELECT number AS n FROM numbers(1_000_000)")
    assert sum(batch.num_rows for batch in obj.iter_batches()) == 1_000_000
    for batch in obj.iter_batches():
        assert batch.num_rows
        break


def test_errors_are_raised_unchanged(waiting):
    obj = sync.create_object_from_value({"price": [1]})
    with pytest.raises(ColumnNotFoundError, match="price"):
        obj.select("prize").data()


def test_contexts_nest_and_end(clickhouse_endpoint):
    with pytest.raises(NoContextError):
        sync.create_object_from_value([1])
    outer = sync.DataContext(clickhouse_endpoint).open()
    obj = sync.create_object_from_value([1, 2])
    with sync.DataContext(clickhouse_endpoint):
        inner = sync.create_object_from_value([3, 4])
        assert (obj + inner).data() == [4, 6]
    with pytest.raises(StaleObjectError):
        inner.data()
    assert obj.data() == [1, 2]
    outer.close()
    with pytest.raises(StaleObjectError):
        obj.data()


def test_contexts_are_per_thread(waiting, clickhouse_endpoint):
    obj = sync.create_object_from_value([1, 2])
    results = []

    def work():
        results.append(obj.data())
        with pytest.raises(NoContextError):
            sync.create_object_from_value([1])
        with sync.DataContext(clickhouse_endpoint):
            results.append(sync.create_object_from_value([3]).data())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [[1, 2], [3]]


def test_interrupt_kills_the_query(waiting, admin):
    endless = "SELECT max(sipHash64(number)) AS endless FROM numbers(1_000_000_000_000)"
    running = "SELECT count() FROM system.processes WHERE query LIKE '%AS endless%' AND query NOT LIKE '%processes%'"

    def interrupt():
        while not admin.query(running).result_rows[0][0]:
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sync.create_object_from_query(endless)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert admin.query(running).result_rows[0][0] == 0
