INSERT INTO task_additions (task_id, attempt, first_id, tasks, groups)
VALUES ($1, $2, $3, $4::bigint[], $5::bigint[])
