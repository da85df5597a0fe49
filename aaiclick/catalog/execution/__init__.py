"""Execution of definitions in tasks: inputs, operators and publication of their rows.

- `definition_task`: the function of every task of a DAG; calls the modules below
- `definition_context`: context of a definition: specification, generations that it reads and writes
- `secret_substitution`: replaces `{secret: NAME}` in settings
- `memoize`: finds outputs that were already computed from the same settings and inputs
- `operator_run`: inputs, settings and state of one run of an operator
- `builtin_operators`: maps built-in operators to their functions
- `sql_and_python_operators`: operators `sql` and `python`
- `http_fetch_operator`: operator `http_fetch_operator`: rows of a document from the web
- `postgres_operators`: operators `postgres_read` and `postgres_write`
- `external_postgres`: their connections, and the types of columns
- `follower_operator`: operator `follower_operator`: new rows of a growing source, in order
- `range_aggregator_operator`: operators `range_aggregator` and `range_splitter`
- `alert_operator`: operator `alert_operator`: compares values with a condition
- `parquet_files_operator`: datasets of Parquet files that another program writes
- `output_writer`: writes the rows of an output and describes the update
- `data_test_gate`: data tests between staging and publication; sets failing rows aside
- `publish`: publication of staged rows under the lease
- `dataset_tables`: generations as ClickHouse tables: staging and atomic publication
- `parquet_storage`: generations as Parquet files, on disk or in S3
- `remote_effects_validation`: checks that an HTTP worker reports effects of its own definition

Next: aaiclick.store.catalog.definition_runs, which writes the effects when the task completes.
"""
