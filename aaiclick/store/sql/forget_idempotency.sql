DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1::float8) LIMIT 10000))
