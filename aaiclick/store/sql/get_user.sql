SELECT id, org_id, external_id, email, role, created_at, disabled_at FROM users WHERE org_id = $1 AND id = $2
