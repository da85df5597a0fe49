-- Leases of the workers $1 run out now: they are dead.
UPDATE tasks SET lease_expires_at = coalesce($2::timestamptz, now()), updated_at = coalesce($2::timestamptz, now())
WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
  AND lease_expires_at > coalesce($2::timestamptz, now())
