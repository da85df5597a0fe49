SELECT id, org_id, slug, name, created_at FROM org_roles WHERE org_id = $1 AND id = $2
