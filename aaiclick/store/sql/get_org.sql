SELECT id, name, slug, weight, max_running, rate_per_second, rate_burst, paused_at, created_at FROM orgs WHERE id = $1
