"""Chaos tests: real servers and workers under load, scheduled faults, and a check that nothing is lost.

- `run`: one run, optionally after a baseline run without faults
- `soak`: long steady load, in which no metric may grow
- `environment`: a separate installation with workers and clients
- `servers`: separate PostgreSQL and ClickHouse servers, and workers
- `tcp_proxy`: the network between them, with latency, black holes and resets
- `load_clients`: clients that submit work and retry until it is acknowledged
- `flow_control_clients`: clients that submit waits, limits, rates, batches, caches and schedules
- `failure_path_clients`: clients of jobs that time out, are cancelled, restarted or pinned
- `approval_clients`: people who decide the approvals of the load
- `tasks`: the task functions
- `dag_workload`: a reactive DAG, and the expected content of its datasets
- `fault_schedule`: times of faults, derived from a seed
- `faults`: injection of each kind of fault
- `history`: log of what clients and tasks observed, outside of the system
- `source_states`: checks of the states of sources
- `observability_check`: checks of metrics, health and logs
- `checker`: compares histories with PostgreSQL and ClickHouse
- `oracle`: expected states of tasks and jobs
- `flow_control_oracle`: expected effects of the load of `flow_control_clients`
- `notification_sinks`: receivers of notifications, and rules that send every incident to them
- `incident_oracle`: expected incidents and messages
- `recovery_times`: recovery time of tasks of killed processes
- `result`: findings of a run
"""
