"""Background loops. `run_once` of a loop does one pass and returns counts.

All may run in several processes at once. The leader runs most of them so that other workers need not; other workers run
only the promoter.

- `leader`: leader election; runs the loops that need no connection of their own
- `periodic`: base class of loops with their own asyncio task and connections

Tasks, before and after their execution:

- `scheduler`: starts due cron sources, and always-on sources after each run
- `event_router`: turns events of datasets into tasks
- `due_task_promoter`: makes due tasks ready
- `runtime_dispatcher`: sends ready tasks to external runtimes
- `reaper`: turns expired leases into retries or dead letters
- `job_timeouts`: fails jobs that exceed their timeout
- `incidents`: counts occurrences, and closes incidents that are over
- `notifications`: plans and enqueues messages about incidents
- `notification_sender`: sends them
- `job_retention`: deletes finished jobs and tasks, and stopped workers

Tables and files:

- `table_cleanup`: drops tables without references
- `table_sweeper`: drops old tables that PostgreSQL does not know
- `data_session_expiry`: finds live sessions that are recorded only in ClickHouse
- `orphan_files`: deletes files of replaced datasets and of failed attempts
- `log_retention`: deletes old logs of tasks

Next: aaiclick.store.engine.maintenance and aaiclick.store.catalog, which have the transactions.
"""
