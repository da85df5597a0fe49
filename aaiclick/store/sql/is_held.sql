-- Whether the attempt $3 of the task $2 holds the table $1.
SELECT EXISTS (SELECT FROM table_references
    WHERE table_name = $1 AND owner = 'ATTEMPT' AND owner_id = $2 AND attempt = $3)
