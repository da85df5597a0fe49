SELECT DISTINCT org_id FROM table_refcounts
