-- Name and limits of the org $1; the rate's bucket starts anew.
UPDATE orgs SET name = $2, weight = $3, max_running = $4, rate_per_second = $5, rate_burst = $6, rate_tokens = NULL, rate_at = NULL
WHERE id = $1 RETURNING id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at
