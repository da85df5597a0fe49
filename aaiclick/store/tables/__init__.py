"""References to ClickHouse tables, and the tables that nothing refers to any more.

- `table_references`: reference counting of ClickHouse tables in PostgreSQL

Next: aaiclick.orchestration.loops.cleanup, which drops tables without references.
"""
