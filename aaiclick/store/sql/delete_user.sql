DELETE FROM users WHERE org_id = $1 AND id = $2 RETURNING id
