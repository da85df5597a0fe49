"""Durable data processing: data in ClickHouse, work in PostgreSQL, one machine or many.

The docstring of each package lists its modules in the order in which data passes through them, and the next package.

A task: submitted by aaiclick.orchestration, stored and claimed by aaiclick.store.engine, executed by
aaiclick.orchestration.worker, completed by aaiclick.store.engine.acknowledge.
A row: written by aaiclick.data.create, an Object of aaiclick.data.object, queried by aaiclick.data.compile and
aaiclick.data.runtime, converted to a Python value by aaiclick.data.io.
A request: received by aaiclick.server, dispatched to aaiclick.server.routes, performed by aaiclick.operations and
aaiclick.store, answered with a schema of aaiclick.api.

- `__main__`: `python -m aaiclick`, the same as the command `aaiclick`
- `cli`: command line, on the databases or on a server
- `client`: Python client of the HTTP API
- `api`: schemas of requests and responses, shared by server, client and workers
- `server`: HTTP API, web UI and worker protocol
- `operations`: use cases with permission check, store call and audit entry
- `catalog`: DAGs in YAML, their deployment and execution, datasets and lineage
- `operators`: `map`, `reduce` and `foreach` over chunks of an Object
- `orchestration`: Python API of jobs and tasks, workers that run them, background loops
- `store`: PostgreSQL: tables, migrations, and the queue engine
- `data`: Objects and Views: tables and columns in ClickHouse
- `local`: embedded PostgreSQL and ClickHouse servers
- `settings`: settings from the environment, validated once
- `server_addresses`: addresses and credentials of servers
- `cron`: nominal times of cron schedules and intervals, and which of them start
- `errors`: base classes of all errors
- `missing_modules`: remedies for dependencies that are not installed
- `tracebacks`: tracebacks trimmed to user code
- `code_version`: version of the user's code: git commit and digests of its modules
- `lazy_modules`: modules that are imported at their first use
- `concurrent_map`: calls of an asynchronous function for many items, a few at a time
- `literal_result_registry`: registry of the store of small results
- `snowflake`: 64-bit ids, ordered by time, unique without a database query
- `tempdirs`: temporary directories that are removed even after a kill
- `failpoints`: named commits at which tests can inject faults
- `testing`: pytest fixtures for code that uses aaiclick
- `backup`: online backup and restore of both databases
- `monitoring`: alert rules for Prometheus and a dashboard for Grafana
- `mcp`: tools for AI assistants (Model Context Protocol)
- `demo`: the shop of `aaiclick demo`
- `chaos`: chaos and soak tests of a whole installation
- `_version`: version of the package
"""

from aaiclick._version import __version__

__all__ = ["__version__"]
