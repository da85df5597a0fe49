INSERT INTO audit_log (org_id, actor, action, target, request_id, detail) VALUES ($1, $2, $3, $4, $5, $6)
