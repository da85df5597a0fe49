-- The runtime could not be told of the tasks $1: why, for whoever asks what they wait for.
UPDATE dispatches SET error = $2 WHERE task_id = ANY ($1::bigint[])
