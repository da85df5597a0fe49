SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3
