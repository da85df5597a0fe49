"""Command-line interface: one module per command group, imported when the command is called.

Start of a command, and where it runs:

- `main`: entry point: command registry and error reporting
- `param_types`: parameter types of options and arguments
- `limit_options`: options for weight and limits, shared by several commands
- `remote`: remote mode: a server instead of the databases
- `database`: local mode: PostgreSQL connection, and formatting of times
- `operations`: runs an operation locally or remotely

The stack:

- `stack`: `aaiclick up`, `down` and `status`
- `up`: main loop of `aaiclick up`
- `api_server`: HTTP server of `aaiclick up`, as a supervised child process
- `server`: `aaiclick server`: run the HTTP API
- `worker`: `aaiclick worker start`: run tasks
- `background`: `aaiclick background`: cleanup of unused tables in a separate process
- `pidfile`: locked pid file, so that a command runs only once
- `config`: `aaiclick config`: settings with value and source
- `migrate`: `aaiclick migrate`: upgrade the PostgreSQL schema
- `doctor`: `aaiclick doctor`: check the installation and suggest fixes
- `chaos`: `aaiclick chaos`: fault injection and soak tests
- `version`: `aaiclick version`: installed versions

Jobs and tasks:

- `run`: `aaiclick run`: submit a job and wait for it
- `user_module`: imports the module of an entry point
- `failure_report`: failed tasks of a job with traceback, last output and next command
- `job_request`: request body for a job graph that was built locally
- `watch`: waits for a job and shows its progress
- `jobs`: `aaiclick jobs`: list and manage jobs
- `tasks`: `aaiclick tasks` and `aaiclick logs`
- `queues`: `aaiclick queues` and `aaiclick workers`
- `task_types`: `aaiclick types`: settings of task types
- `schedules`: `aaiclick schedules`: schedules of jobs and queue items
- `dlq`: `aaiclick dlq`: list, redrive and discard dead letters

Data and DAGs:

- `data`: `aaiclick data`: list, show and export Objects
- `dag`: `aaiclick dag`: validate, diff, deploy, run and roll back DAGs
- `datasets`: `aaiclick datasets`: list, show, query and rematerialize datasets
- `outbox_events`: `aaiclick events`: send events, list and retry dataset events

Organisations:

- `org`: `aaiclick org`: organisations
- `user`: `aaiclick user`: users of an identity provider
- `role`: `aaiclick role`: dataset roles and their members
- `api_keys`: `aaiclick key`: API keys
- `secrets`: `aaiclick secrets`: secrets of an organisation

Results:

- `output`: prints data as a table or JSON, and messages on standard error

Next: aaiclick.operations and aaiclick.store in local mode, aaiclick.client in remote mode.
"""
