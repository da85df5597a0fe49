-- Without statistics PostgreSQL expects few jobs of an org and few tasks of a job, and would collect and sort all of them: counting
-- is four times as quick by hashing, and the newest, or a page, are read in the order of an index.
SET LOCAL enable_sort = off
