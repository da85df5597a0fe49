"""Mutations of literals: small results that are stored with their tasks."""

from __future__ import annotations

from tests.mutations import Mutation

SQL = "aaiclick/store/sql"
DATA = "tests/integration/data/test_literals.py"
LIFECYCLE = "tests/integration/lifecycle/test_literals.py"
FOREIGN = "tests/unit/data/test_untrusted_arrow.py"

LITERAL_MUTATIONS = (
    Mutation(
        "literals: the organisation of a reader, `load_literals`", f"{SQL}/literals.sql",
        "result ->> 'table_id' = ANY ($1::text[]) AND org_id = $2",
        "result ->> 'table_id' = ANY ($1::text[]) AND $2::uuid IS NOT NULL",
        (f"{LIFECYCLE}::test_a_literal_of_another_organisation_does_not_exist",),
    ),
    Mutation(
        "literals: one caller creates the table, `reserve_literal_table`", f"{SQL}/literals.sql",
        "        WHERE c.updated_at < now() - $3::float8 * interval '1 second' AND c.dropping_at IS NULL\n",
        "        WHERE $3::float8 > 0\n",
        (f"{LIFECYCLE}::test_one_caller_reserves_the_table_of_a_literal",),
    ),
    Mutation(
        "literals: the table is filled under another name", "aaiclick/data/context.py",
        "                if error.code != TABLE_ALREADY_EXISTS:\n                    raise\n",
        "                await client.layout.drop_table(table.name, self.query_id())\n                raise\n",
        (f"{DATA}::test_statements_of_an_earlier_caller_change_nothing",),
    ),
    Mutation(
        "literals: no compressed Arrow of other processes", "aaiclick/data/io/untrusted_arrow.py",
        'raise _invalid_error("it is compressed")', "pass",
        (f"{FOREIGN}::test_a_compressed_stream_is_refused_before_it_is_expanded",),
    ),
    Mutation(
        "literals: no Arrow rows without bytes", "aaiclick/data/io/untrusted_arrow.py",
        "if table.num_rows > MAX_ROWS_PER_BYTE * len(data):", "if False:",
        (f"{FOREIGN}::test_rows_without_bytes_are_refused",),
    ),
    Mutation(
        "additions: a durable commit, `lock_lease`", f"{SQL}/leases.sql",
        "cancel_requested_at IS NOT NULL AS cancelled, queue FROM tasks\nWHERE id = $1",
        "set_config('synchronous_commit', 'off', true) FROM tasks\nWHERE id = $1",
        ("tests/integration/engine/test_dynamic_tasks.py::test_additions_are_durable_before_the_attempt_continues",),
    ),
)  # fmt: skip
