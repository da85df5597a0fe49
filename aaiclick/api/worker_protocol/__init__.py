"""Schemas of the worker protocol, by which workers without a database run tasks over HTTP.

A lease is the right to one attempt: task, attempt and a secret token. Every write about a task is fenced by its lease
and changes nothing once another attempt has begun.

- `endpoints`: path, body and response of each request; aliases
- `field_types`: field types and leases that several schemas share
- `workers`: requests of a supervisor: registration, leases of its processes, loops of the leader
- `claims`: claims, heartbeats and waiting for work
- `tasks`: requests of a running task: new tasks, results, tables, secrets, log parts
- `dag_tasks`: requests of a task of a DAG: definition, states, partitions, publication, events
- `outcomes`: outcomes of attempts

Next: aaiclick.server.routes.worker_api, which receives and returns them.
"""
