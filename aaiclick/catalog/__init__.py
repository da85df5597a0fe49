"""The catalogue: DAGs from YAML, their versions, datasets, lineage, schedules and operators.

- `python_dags`: DAGs in Python: `@dataset` and `sql_dataset`
- `dags`: DAG files: parsing, validation, content hashes and diffs
- `queries`: SQL over datasets: parsing, checks, rewriting and column lineage
- `sql_yaml_analysis`: runs the code of `dags` and `queries` in a process pool, if one is set
- `operators`: operators of definitions: registry, settings and pure logic
- `deploy`: adds a version of a DAG, fills its new datasets, then makes it serve
- `backfill`: plans and starts the missing runs of a range
- `webhooks`: starts a source on a signed request
- `execution`: runs a definition in a task and publishes its rows
- `dataset_range_registration`: registers versions of a dataset by range of positions
- `dataset_queries`: queries over datasets by name, and their lineage
- `freshness_forecast`: states of datasets with a freshness policy, and the causes of delays
- `system_datasets`: results of data tests and states of freshness as datasets
- `task_output_summary`: summaries of the outputs of a task
- `dataset_visibility`: hides DAGs and tasks of datasets that a reader's roles do not allow
- `errors`: errors of the catalogue

Next: aaiclick.store.catalog, which stores versions, runs and events.
"""

from aaiclick.catalog.python_dags import dataset, sql_dataset

__all__ = ["dataset", "sql_dataset"]
