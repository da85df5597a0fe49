SELECT previous_id, next_id FROM dependencies WHERE next_id = ANY ($1::bigint[]) LIMIT $2
