"""DAG versions, datasets, sources, runs of definitions, and the outbox of dataset events.

- `dag_versions`: versions of DAGs, and the dataset versions they refer to
- `dag_sources`: sources of DAGs: due ones, status, pause, resume, manual start
- `backfill`: starts the missing runs of past schedule times and partitions
- `dataset_events`: emits events into the outbox, and inserts tasks of definitions
- `event_routing`: routes events to tasks, each once, in order per dataset
- `outbox`: lists pending and failed events, and retries failed ones
- `definition_runs`: reads and effects of tasks of definitions
- `data_test_results`: results of data tests
- `freshness`: freshness policies, and when updates are due
- `freshness_policy`: when an update is due by a policy
- `datasets`: datasets for readers: visibility, generations, ranges, lineage
- `orphan_files`: files that belong to no generation

Next: aaiclick.store.engine, where the inserted tasks are claimed.
"""
