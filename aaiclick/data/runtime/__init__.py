"""The ClickHouse client, execution of queries, and the tables behind Objects.

- `tables`: tables of Objects: names, definitions and reference handles
- `literal_result_rows`: rows of a small Object that is not stored as a table
- `table_layout`: statements that create, alter and drop tables on a single server
- `cluster`: the same for a cluster: local tables and one Distributed table
- `append`: atomic append by concurrent writers
- `parallel_write`: writes of many processes to one table, with retries
- `execute`: execution of relations: prepare, compile, run
- `chunk_boundaries`: index of chunk starts in a filtered view
- `clickhouse_client`: ClickHouse HTTP client with cancellable queries
- `server_errors`: translation of ClickHouse and network errors
- `inspect`: list, describe, preview and export Objects without a DataContext
- `lifecycle`: reference counting of tables of Objects

Next: aaiclick.data.io.from_arrow, which converts results to Python.
"""
