"""The tests of Objects that say most, on a cluster: rows in ranges of four on two nodes, and the same answers."""

# ruff: noqa: F401
from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.data.test_append import (
    test_a_failed_append_changes_nothing,
    test_engines_without_locks_still_append,
    test_replacing_a_named_object_waits_for_appends,
)
from tests.integration.data.test_objects import (
    pytestmark,
    test_aggregates,
    test_an_object_kept_under_a_name_stays_itself,
    test_asof_join,
    test_batches_in,
    test_concat_explode_and_insert,
    test_conditionals,
    test_different_lengths_are_an_error_that_names_them,
    test_element_wise_between_objects,
    test_errors_help,
    test_filtered_objects_combine_by_position,
    test_from_query,
    test_groups,
    test_joins,
    test_named_objects_outlive_their_context,
    test_out_in_other_forms,
    test_sampling_is_repeatable,
    test_scalars_are_inlined_and_broadcast,
    test_select_filter_sort_slice,
    test_summaries,
    test_used_twice_is_stored_once,
    test_views_and_their_forms,
    test_windows,
)
from tests.integration.data.test_pipelines import STEPS, frames, test_any_pipeline
from tests.integration.operators.test_gather import (
    test_a_zombie_that_writes_after_the_end_changes_nothing,
    test_expressions_are_written_without_leaving_the_server,
    test_lost_rows_are_noticed,
    test_many_parts_are_copied_in_pieces,
    test_parts_of_other_sizes_are_numbered_anew,
    test_rows_of_other_attempts_vanish,
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
