"""Command-line interface: one module per command group, imported when the command is called.

Start of a command, and where it runs:

- `main`: entry point: command registry and error reporting
- `param_types`: parameter types of options and arguments
- `limit_options`: options for weight and limits, shared by several commands
- `remote`: remote mode: a server instead of the databases
- `database`: local mode: PostgreSQL connection, and formatting of times
- `local_and_remote_operations`: runs an operation locally or remotely
- `id_prefixes`: ids by their first digits
- `other_item_suggestion`: the remedy for the id of another kind of item
- `postgres_host_notice`: message that POSTGRES_HOST chooses the database
- `table_output`: tables that fit the terminal

The stack:

- `init`: `aaiclick init`: create a project
- `project_template`: files of a new project
- `stack`: `aaiclick up`, `down` and `status`
- `up_main_loop`: main loop of `aaiclick up`
- `dev`: `aaiclick dev`: stack, web UI and a worker that reloads
- `log_tail`: new lines of task logs and of the server's log, for `aaiclick dev`
- `supervised_api_server`: HTTP server of `aaiclick up`, as a supervised child process
- `server`: `aaiclick server`: run the HTTP API
- `worker`: `aaiclick worker start`: run tasks
- `background_cleanup`: `aaiclick background`: cleanup of unused tables in a separate process
- `pidfile`: locked pid file, so that a command runs only once
- `config`: `aaiclick config`: settings with value and source
- `migrate`: `aaiclick migrate`: upgrade the PostgreSQL schema
- `doctor`: `aaiclick doctor`: check the installation and suggest fixes
- `backup`: `aaiclick backup` and `restore`: both databases of one moment
- `monitoring`: `aaiclick monitoring`: alert rules for Prometheus, a dashboard for Grafana
- `mcp`: `aaiclick mcp`: tools for AI assistants over standard input and output
- `demo`: `aaiclick demo`: a shop, and a worker that is killed while it works
- `chaos`: `aaiclick chaos`: fault injection and soak tests
- `completion`: `aaiclick completion`: completion in shells
- `version`: `aaiclick version`: installed versions

Jobs and tasks:

- `run`: `aaiclick run`: the command and its help
- `run_job`: submits the job of `aaiclick run`, waits for it and prints its results
- `job_arguments`: parameters of a job as options of `aaiclick run`
- `entrypoint_import`: imports the module of an entry point
- `failure_report`: failed tasks of a job with traceback, last output and next command
- `job_request`: request body for a job graph that was built locally
- `progress_bars`: progress bars with rate and remaining time
- `watch`: waits for a job and shows its progress
- `waiting_reason_text`: message about a task that waits
- `enqueue`: `aaiclick tasks enqueue`
- `functions`: `aaiclick functions`: `@job` functions that workers have registered
- `jobs`: `aaiclick jobs`: list and manage jobs
- `tasks`: `aaiclick tasks` and `aaiclick logs`
- `queues_and_workers`: `aaiclick queues` and `aaiclick workers`
- `task_types`: `aaiclick types`: settings of task types
- `schedules`: `aaiclick schedules`: schedules of jobs and queue items
- `incidents`: `aaiclick incidents`: list, acknowledge, snooze and close incidents
- `notify`: `aaiclick notify`: channels, rules and messages of notifications
- `approvals`: `aaiclick approvals`: list and decide what waits for people
- `dlq`: `aaiclick dlq`: list, redrive and discard dead letters

Data and DAGs:

- `data`: `aaiclick data`: list, show and export Objects
- `dag_files`: DAG files in YAML, and Python modules as YAML
- `dag_function_checks`: checks functions of `python` definitions
- `dag`: `aaiclick dag`: validate, diff, deploy, run and roll back DAGs
- `datasets`: `aaiclick datasets`: list, show, query and rematerialize datasets
- `events`: `aaiclick events`: send events, list and retry dataset events

Organisations:

- `org`: `aaiclick org`: organisations
- `user`: `aaiclick user`: users of an identity provider
- `role`: `aaiclick role`: dataset roles and their members
- `api_keys`: `aaiclick key`: API keys
- `secrets`: `aaiclick secrets`: secrets of an organisation

Results:

- `output_option`: the option `-o` of commands that print data
- `output`: prints data as a table or JSON, and messages on standard error

Next: aaiclick.operations and aaiclick.store in local mode, aaiclick.client in remote mode.
"""
