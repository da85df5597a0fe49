-- Attempts that did not succeed, by how they ended.
SELECT outcome::text AS status, count(*) AS count FROM task_attempts GROUP BY 1
