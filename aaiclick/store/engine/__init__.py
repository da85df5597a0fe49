"""The queue engine: submit, claim, lease, acknowledge, propagate, retry, maintain.

Submit:

- `submission_plan`: cycle check and initial counters of a submission, as pure functions
- `new_jobs`: the row of a new job
- `job_concurrency`: limits of jobs of one name
- `result_cache`: cached results of tasks
- `job_functions`: `@job` functions that workers have registered
- `submit`: submits jobs, and adds nodes to them
- `submit_stream`: submits a job slice by slice
- `enqueue`: enqueues tasks without a job
- `result_placeholders`: placeholders of task results in JSON arguments
- `schedules`: schedules of jobs and queue items
- `task_types`: retry policies per task type
- `concurrency_keys`: makes held tasks ready while slots of their concurrency key are free

Claim and execute:

- `queue`: exports the functions that workers and loops call
- `workers`: registration of workers, leader election, detection of dead workers
- `leases_and_outcomes`: leases, claims and outcomes of attempts, as values
- `claims`: claims tasks, renews their leases, promotes due tasks
- `runtime_dispatches`: dispatches of ready tasks to external runtimes
- `worker_leases`: leases that a supervisor manages for its processes
- `waits`: tasks that wait for a time, an event or a job, and events
- `approvals`: waits that end by a person's decision, and one-time links to them
- `dynamic_tasks`: tasks that a running task adds or returns

Complete:

- `acknowledge`: acknowledges outcomes of attempts, fenced by their leases
- `propagate`: propagates ended tasks to groups, dependents, slots and jobs
- `skipped_tasks`: skips tasks that a branch left out, and starts handlers
- `incidents`: opens incidents in the transactions that cause them, counts and closes them
- `notification_rules`: channels of notifications, and the rules that choose them
- `notification_deliveries`: plans messages about incidents, and enqueues their deliveries
- `maintenance`: passes of the loops: lease reaper, job timeouts, retention

Requests of users:

- `user_actions`: exports the functions that change tasks, queues and types
- `cancel`: cancels jobs and tasks
- `pause`: pauses and resumes orgs, queues, types and jobs
- `retry_and_redrive`: retries failed tasks, redrives dead letters, clears tasks
- `task_input_check`: checks before a clear that the inputs of tasks still exist
- `rerun`: submits the nodes of a job as a new job
- `queries`: queries for jobs, tasks, dead letters and workers
- `explain_task`: explains why a task has not ended
- `health`: health checks that PostgreSQL answers
- `invariants`: checks of the engine's invariants on a live database

Next: aaiclick.orchestration.worker after a claim; the task of a DAG writes its effects by
aaiclick.store.catalog.definition_runs.
"""
