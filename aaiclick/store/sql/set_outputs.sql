UPDATE tasks SET outputs = $2::jsonb, input_versions = $3::jsonb WHERE id = $1
