"""The shop of `aaiclick demo`: a DAG with published datasets, and a job that survives the loss of a worker.

- `shop`: tasks, the job, and the Python functions of `shop.yaml`

Next: aaiclick.cli.demo, which runs it.
"""
