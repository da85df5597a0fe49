INSERT INTO orgs (name, slug, weight, max_running, rate_per_second, rate_burst) VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at
