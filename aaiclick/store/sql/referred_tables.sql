-- Those of the tables $1 that something refers to.
SELECT DISTINCT table_name FROM table_references WHERE table_name = ANY ($1::text[])
