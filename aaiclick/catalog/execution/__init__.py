"""Execution of definitions in tasks: inputs, operators and publication of their rows.

- `definition_task`: the function of every task of a DAG; calls the modules below
- `definition`: context of a definition: specification, generations that it reads and writes
- `secrets`: replaces `{secret: NAME}` in settings
- `memoize`: finds outputs that were already computed from the same settings and inputs
- `operator_run`: inputs, settings and state of one run of an operator
- `operator_functions`: maps built-in operators to their functions
- `sql_python`: operators `sql` and `python`
- `http_fetch`: operator `http_fetch`: rows of a document from the web
- `follower`: operator `follower`: new rows of a growing source, in order
- `range_operators`: operators `range_aggregator` and `range_splitter`
- `alert_evaluate`: operator `alert_evaluate`: compares values with a condition
- `external_parquet`: datasets of Parquet files that another program writes
- `publish`: publication of staged rows under the lease
- `table_storage`: generations as ClickHouse tables: staging and atomic publication
- `parquet_storage`: generations as Parquet files, on disk or in S3
- `effect_check`: checks in the server that an HTTP worker reports only effects of its definition

Next: aaiclick.store.catalog.runs, which writes the effects when the task completes.
"""
