-- The task $2 waits for the tasks $1, which it has returned.
INSERT INTO dependencies (previous_id, next_id, previous_type, next_type)
SELECT unnest($1::bigint[]), $2, 'task', 'task'
