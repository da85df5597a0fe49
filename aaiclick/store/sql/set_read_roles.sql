UPDATE datasets SET read_roles = $3::text[], updated_at = now() WHERE org_id = $1 AND name = $2 RETURNING id
