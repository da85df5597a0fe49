-- The tables $1 are gone.
DELETE FROM table_refcounts WHERE table_name = ANY ($1::text[]) AND dropping_at IS NOT NULL AND refcount <= 0
