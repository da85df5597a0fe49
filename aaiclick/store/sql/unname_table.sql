-- The table $1 is about to go with its name: nobody need know of it any more.
DELETE FROM table_refcounts WHERE table_name = $1
