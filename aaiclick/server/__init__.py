"""HTTP server: the API, the web UI and the protocol of remote workers.

`app.create_app` builds the application, `serve.serve` runs it. Nothing is imported here: FastAPI is heavy, and
`aaiclick up` opens the socket before it imports the server.

Start:

- `listen_address`: listening socket of the server
- `serve`: runs the server with uvicorn, and stops it
- `app`: the FastAPI application
- `app_state`: state shared by all requests: pools, caches, authentication

A request:

- `connection_time_limits`: HTTP/1.1 connections with time limits
- `middleware`: request ids, limits, access log, security headers, error responses
- `routing`: declaration of routes; checks permissions before the body is parsed
- `authentication`: bearer tokens: API keys and JWTs
- `oidc_tokens`: verification of tokens of an OpenID Connect provider
- `csrf`: CSRF checks by Origin and Sec-Fetch-Site
- `request_body`: request bodies with limits of size, depth, time and memory
- `routes`: API routes, one module per resource
- `ui`: web UI
- `mcp`: tools for AI assistants at `/mcp`
- `idempotency`: performs a repeated request once, by its Idempotency-Key
- `job_graph_builder`: task graph of a job that was submitted as JSON
- `query_limits`: limits of concurrent queries over datasets
- `analysis_pool`: pool of processes that analyse SQL and YAML
- `analysis_process`: a process of that pool

Next: aaiclick.operations and aaiclick.store.

A response:

- `cache`: cache of query results with single flight
- `pagination`: keyset pagination with an opaque cursor
- `task_logs`: task logs in the log directory of the server
- `metrics`: metrics in Prometheus' text format
- `sse`: server-sent events
- `problem_responses`: RFC 9457 problem responses: status and code of every error

Background:

- `reconnect`: background work over a connection that is re-established after outages
- `change_feed`: feed of job changes for server-sent events
- `work_notifier`: notifier for workers that long-poll for work
- `notification_sender`: notification sender, for installations where workers have no database
- `event_router`: event router, for installations where workers have no database
- `worker_clickhouse_users`: ClickHouse credentials of remote workers
"""
