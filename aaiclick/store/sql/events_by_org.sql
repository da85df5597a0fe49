SELECT org_id, count(*) FROM outbox WHERE id = ANY ($1::bigint[]) GROUP BY org_id ORDER BY org_id
