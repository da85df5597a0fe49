-- Weight and limits of the queue $2 of the org $1; the rate's bucket starts anew.
INSERT INTO queues (org_id, name, weight, max_running, rate_per_second, rate_burst) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (org_id, name) DO UPDATE SET weight = excluded.weight, max_running = excluded.max_running,
    rate_per_second = excluded.rate_per_second, rate_burst = excluded.rate_burst, rate_tokens = NULL, rate_at = NULL
