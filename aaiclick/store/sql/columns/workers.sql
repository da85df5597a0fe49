id, started_at, last_heartbeat, stopped_at, tasks_completed, tasks_failed, pid, pool_size, status, is_leader,
leader_until, leader_term, hostname, version, queues, org_id, drain_requested_at, log_directory
