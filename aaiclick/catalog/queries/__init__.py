"""SQL over datasets: parse, check, rewrite to tables, trace column lineage.

- `select_parser`: parses a query into a tree that is one SELECT, or refuses it
- `allowlist`: functions, types and keywords that queries may use
- `column_lineage`: dataset columns that each output column is computed from
- `column_scopes`: names of columns inside a SELECT
- `table_rewrite`: rewrites dataset names to ClickHouse tables

Next: aaiclick.catalog.dataset_queries and aaiclick.catalog.execution.sql_and_python_operators, which run the query.
"""
