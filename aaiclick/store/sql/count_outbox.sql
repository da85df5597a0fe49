SELECT status::text, count(*) FROM outbox WHERE $1::uuid IS NULL OR org_id = $1 GROUP BY status
