SELECT id, org_id, slug, name, created_at FROM org_roles WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3
