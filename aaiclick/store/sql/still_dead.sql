-- Those of the tasks $1 that are dead letters still; nobody else decides about them until this transaction ends.
SELECT id FROM tasks WHERE id = ANY ($1::bigint[]) AND status = 'DEAD_LETTER' ORDER BY id FOR NO KEY UPDATE
