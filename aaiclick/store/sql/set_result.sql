UPDATE tasks SET result = $2::jsonb WHERE id = $1
