-- What became of the attempts of the task $1 that did not succeed.
SELECT {task_attempts.*} FROM task_attempts WHERE task_id = $1 ORDER BY attempt
