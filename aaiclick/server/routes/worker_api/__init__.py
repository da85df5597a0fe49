"""The worker protocol: routes for workers without database credentials.

- `registration_and_leases`: supervisor: register workers, renew leases, settle ended processes
- `tasks`: claim, heartbeat, acknowledge, and requests of running attempts
- `dag_tasks`: requests of tasks of DAGs: definition, state, publication, events
- `aliases`: paths of the design documents

Next: aaiclick.store.engine and aaiclick.store.catalog.definition_runs.
"""
