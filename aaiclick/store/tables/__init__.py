"""References to ClickHouse tables, and the tables that nothing refers to any more.

- `table_references`: reference counting of ClickHouse tables in PostgreSQL
- `literal_results`: small results that are stored with their tasks instead of tables

Next: aaiclick.orchestration.loops.table_cleanup, which drops tables without references.
"""
