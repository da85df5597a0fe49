"""The catalogue: which tasks exist. DAGs from YAML, their versions, datasets, lineage, schedules, operators."""
