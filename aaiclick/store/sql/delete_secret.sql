DELETE FROM org_secrets WHERE org_id = $1 AND name = $2 RETURNING name
