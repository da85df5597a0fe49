"""The most important tests of Objects, run on a cluster: ranges of four rows on two nodes."""

# ruff: noqa: F401
from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.data.test_append import (
    test_a_failed_append_changes_nothing,
    test_append_works_on_engines_without_locks,
    test_replacing_a_named_object_waits_for_appends,
)
from tests.integration.data.test_objects import (
    pytestmark,
    test_aggregates,
    test_asof_join,
    test_concat_explode_and_insert,
    test_conditionals,
    test_create_from_batches,
    test_element_wise_between_objects,
    test_errors_suggest_a_remedy,
    test_export_to_arrow_pandas_polars_and_numpy,
    test_expression_used_twice_is_computed_once,
    test_filtered_objects_combine_by_position,
    test_from_query,
    test_groups,
    test_joins,
    test_length_mismatch_error_names_the_lengths,
    test_named_copy_is_independent,
    test_named_objects_outlive_their_context,
    test_sampling_is_repeatable,
    test_scalars_are_inlined_and_broadcast,
    test_select_filter_sort_slice,
    test_summaries,
    test_views_and_their_forms,
    test_windows,
)
from tests.integration.data.test_pipelines import STEPS, frames, test_any_pipeline
from tests.integration.operators.test_parallel_write import (
    test_expressions_are_written_server_side,
    test_large_copies_run_in_batches,
    test_missing_rows_raise_data_error,
    test_parts_of_unexpected_size_are_renumbered,
    test_rows_of_rejected_attempts_are_dropped,
    test_writes_after_seal_are_ignored,
)

test_any_pipeline = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)(
    given(
        values=frames(),
        steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(-10, 10)), min_size=2, max_size=7),
        stored=st.integers(0, 7),
    )(test_any_pipeline.hypothesis.inner_test)
)
