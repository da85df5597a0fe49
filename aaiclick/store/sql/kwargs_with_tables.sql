-- Arguments of the tasks $1, of those that are given tables or what other tasks returned.
SELECT id, kwargs::text AS kwargs FROM tasks WHERE id = ANY ($1::bigint[]) AND kwargs::text LIKE '%"object_type"%'
