"""Compiler of relations to ClickHouse SELECT statements.

- `relation_nodes`: relation nodes: ordered sets of rows with named columns
- `row_alignment`: row alignment of the operands of an expression
- `join_columns`: columns of joins, concatenations and inserts
- `pruning`: projection pushdown
- `statements`: compiled statements: SELECT to read a relation, INSERT … SELECT to store it
- `relation_compiler`: a relation becomes one SELECT
- `expression_compiler`: an expression becomes one SQL expression
- `select_builder`: the clauses of a SELECT under construction
- `data_test_queries`: data tests as one query
- `sql`: builders of sqlglot trees, and the generator of ClickHouse SQL

Next: aaiclick.data.runtime.execute, which runs the statements.
"""
