-- Entries of the org $1 before the id $2, newest first, at most $3.
SELECT id, at, actor, action, target, request_id, detail FROM audit_log WHERE org_id = $1 AND id < $2
ORDER BY id DESC LIMIT $3
