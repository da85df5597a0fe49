SELECT {tasks.*} FROM tasks WHERE id = $1
