-- The tasks $1 start over: what they returned, and what attempts of them held, is released.
DELETE FROM table_references WHERE owner_id = ANY ($1::bigint[]) AND owner IN ('ATTEMPT', 'RESULT')
