"""The catalogue: DAGs from YAML, their versions, datasets, lineage, schedules and operators.

- `dags`: DAG files: parsing, validation, content hashes and diffs
- `queries`: SQL over datasets: parsing, checks, rewriting and column lineage
- `analysis`: runs the code of `dags` and `queries` in a process pool, if one is set
- `operators`: operators of definitions: registry, settings and pure logic
- `deploy`: adds a version of a DAG, fills its new datasets, then makes it serve
- `backfill`: plans and starts the missing runs of a range
- `webhooks`: starts a source on a signed request
- `execution`: runs a definition in a task and publishes its rows
- `range_registration`: registers versions of a dataset by range of positions
- `datasets`: queries over datasets by name, and their lineage
- `task_summary`: summaries of the outputs of a task
- `visibility`: hides DAGs and tasks of datasets that a reader's roles do not allow
- `errors`: errors of the catalogue

Next: aaiclick.store.catalog, which stores versions, runs and events.
"""
