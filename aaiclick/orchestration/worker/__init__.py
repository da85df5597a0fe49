"""The worker: a supervisor and its worker processes, each running many tasks concurrently.

Start:

- `supervisor`: starts worker processes, renews their leases, kills those that do not stop
- `retrying_connection`: connection to the queue that reconnects during outages
- `process_config`: configuration of worker processes, sent over a pipe
- `process_starter`: starts worker processes, for reloads in advance
- `code_watcher`: finds changes of the user's files, for `--reload`
- `main`: entry point of a worker process
- `loaded_code`: files of the user's code that a process has loaded, and their changes
- `function_registration`: registers the `@job` functions of imported modules
- `executor_factory`: creates the Executor of a worker process

From claim to outcome:

- `worker_process`: claims tasks in batches, runs many concurrently, acknowledges them in batches
- `sqs_wakeup`: one claim per received SQS message
- `claim_buffer`: claimed tasks that have not started
- `running_task`: a claimed task in this process, and how it is stopped
- `at_most_once_start`: records the start of tasks that must not run twice
- `executor`: runs one task from its claim to its outcome
- `batches`: items of batch handlers that share one call
- `entrypoints`: resolves the entrypoint of a task to a function
- `own_code_detection`: checks whether a module is the user's own code
- `task_data`: DataContext of an attempt
- `argument_binding`: results of other tasks and Objects as arguments of the annotated types
- `result_publishing`: returned values as literals or tables
- `failure_outcomes`: failures and releases of attempts
- `outcome_counter`: counts of accepted outcomes, reported to the queue
- `isolation`: runs a task in its own process
- `fork_server`: process that has imported everything and forks on request
- `logs`: output of each task in its own log
- `log_shipping`: sends logs of an HTTP worker to the server
- `attempt_telemetry`: spans and JSON log lines of attempts
- `outages`: errors of the worker's own servers, which do not charge an attempt

Other workers:

- `lambda_handler`: one task per invocation of a Lambda function
- `inline_runner`: runs tasks in this process until a job has ended

Next: aaiclick.orchestration.gateway, which sends claims and outcomes to aaiclick.store.engine.
"""
