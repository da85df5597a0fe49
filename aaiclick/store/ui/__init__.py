"""Bounded queries of the web UI.

- `job_queries`: jobs, tasks, queues and workers
- `dag_queries`: DAGs, sources and datasets

Next: aaiclick.server.ui.pages, which shows the rows.
"""
