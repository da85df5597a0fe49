-- The role of the org $1 that its slug names, or its id.
SELECT id, org_id, slug, name, created_at FROM org_roles
WHERE org_id = $1 AND (slug = $2::text OR id::text = $2) ORDER BY slug = $2 DESC LIMIT 1
