UPDATE users SET email = $3, role = $4, disabled_at = CASE WHEN $5 THEN coalesce(disabled_at, now()) END
WHERE org_id = $1 AND id = $2 RETURNING id, org_id, external_id, email, role, created_at, disabled_at
