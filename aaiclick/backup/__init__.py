"""Online backup and restore: one consistent cut of PostgreSQL and ClickHouse.

While the cut is made, two tables are locked against writes: `dataset_partitions`, which a publication writes before it
changes a dataset's table, and `table_refcounts`, which is written before a table is created or dropped. Tasks go on;
only these writes wait, until ClickHouse has collected the parts of the backup. PostgreSQL is then dumped from the
snapshot of that moment.

- `consistent_snapshot`: locks and snapshot in PostgreSQL
- `clickhouse_backup`: BACKUP and RESTORE of all databases
- `pg_dump_and_restore`: pg_dump and pg_restore
- `create`: `aaiclick backup`
- `restore`: `aaiclick restore`

Next: aaiclick.cli.backup, and aaiclick.cli.doctor, which checks a restored installation.
"""
