SELECT * FROM tasks WHERE id = $1
