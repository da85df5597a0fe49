UPDATE jobs SET total_tasks = total_tasks - $2, open_tasks = open_tasks - $3, failed_tasks = failed_tasks - $4,
    cancelled_tasks = cancelled_tasks - $5
WHERE id = $1
