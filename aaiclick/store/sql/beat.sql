-- The worker $1 lives, and has meanwhile completed $2 tasks and failed $3.
UPDATE workers SET last_heartbeat = coalesce($4::timestamptz, now()), tasks_completed = tasks_completed + $2,
    tasks_failed = tasks_failed + $3
WHERE id = $1 AND status <> 'STOPPED'
