task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at, error, error_fingerprint, log_path
