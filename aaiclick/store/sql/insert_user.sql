INSERT INTO users (org_id, external_id, email, role) VALUES ($1, $2, $3, $4) RETURNING id, org_id, external_id, email, role, created_at, disabled_at
