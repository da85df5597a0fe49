-- name: write_audit
INSERT INTO audit_log (org_id, actor, action, target, request_id, detail) VALUES ($1, $2, $3, $4, $5, $6)

-- name: list_audit
-- Audit entries of the org $1 before the id $2, newest first, at most $3.
SELECT id, at, actor, action, target, request_id, detail FROM audit_log WHERE org_id = $1 AND id < $2
ORDER BY id DESC LIMIT $3

-- name: lock_idempotency_key
-- False: a request with the same key is in progress.
SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))

-- name: find_response
SELECT body_hash, status, body FROM idempotency_keys WHERE org_id = $1 AND route = $2 AND key = $3

-- name: insert_response
INSERT INTO idempotency_keys (org_id, route, key, body_hash, status, body) VALUES ($1, $2, $3, $4, $5, $6)

-- name: delete_old_responses
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1::float8) LIMIT 10000))
