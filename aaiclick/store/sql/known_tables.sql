-- Which of the tables $1 are known.
SELECT table_name FROM table_refcounts WHERE table_name = ANY ($1::text[])
