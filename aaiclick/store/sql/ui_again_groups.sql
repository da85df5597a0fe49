-- Groups that the job $1 was submitted with, at most $2.
SELECT id, name, parent_group_id FROM groups WHERE job_id = $1 AND added_by IS NULL ORDER BY id LIMIT $2
