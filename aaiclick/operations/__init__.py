"""Every use case once: permission check, store call and audit entry in one transaction.

HTTP routes and pages call an operation with the actor of the request; the local command line calls it with the user of
the machine; the remote command line calls the client's method of the same name, which is declared in the module of the
same name of `aaiclick.client.endpoints`.

- `actor`: actors and their permissions
- `database_access`: connections for operations that need more than one PostgreSQL connection
- `operation`: the decorator of operations, and audit entries
- `pagination`: pages of lists, and their cursors
- `dataset_reader`: the actor as a reader of datasets
- `job_and_task_lookups`: jobs and tasks that an actor sees
- `row_conversion`: rows of the store as models
- `dags`: operations on DAGs, with their versions and runs
- `datasets`: operations on datasets
- `data_tests`: results of data tests
- `freshness`: freshness of datasets
- `objects`: operations on Objects
- `jobs`: operations on jobs
- `tasks`: operations on tasks
- `log_files`: files with the logs of tasks
- `dead_letters`: operations on dead letters
- `outbox`: operations on events of datasets that are not routed
- `workflow_events`: operations on events that tasks wait for
- `incidents`: operations on incidents
- `notifications`: operations on channels, rules and messages of notifications
- `approvals`: operations on approvals and their one-time links
- `queues`: operations on queues and task types
- `workers`: operations on workers
- `schedules`: operations on schedules
- `enqueue`: items of requests as tasks, for the operation of `tasks`
- `job_functions`: operations on job functions
- `orgs`: operations on organisations
- `users`: operations on users
- `roles`: operations on dataset roles and their members
- `api_keys`: operations on API keys
- `secrets`: operations on secrets
- `audit`: reads of the audit log

Next: aaiclick.store.engine and aaiclick.store.tenancy.
"""
