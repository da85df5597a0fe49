INSERT INTO org_roles (org_id, slug, name) VALUES ($1, $2, $3) RETURNING id, org_id, slug, name, created_at
