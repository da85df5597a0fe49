"""Everything about PostgreSQL: models, migrations, connections, statements. No other package sends SQL to it.

- `postgres_connections`: connections to PostgreSQL, and errors for users
- `connection_pooler_checks`: support of connection poolers such as PgBouncer
- `asyncpg_types`: array and enum types for asyncpg
- `enums`: enums and constants of the schema
- `json_types`: field types of values that are JSON outside of a process
- `name_and_key_limits`: limits of names and keys that are stored in indexes
- `job_policy`: limits of the jobs of a function, from keyword arguments to the engine
- `task_options`: options of a task, from keyword arguments to columns
- `statements`: statements by name, parsed from `sql`
- `sql`: files with the statements
- `typed_rows`: rows as dataclasses
- `tenancy`: organisations, users, API keys, secrets and the audit log
- `engine`: the queue engine: submit, claim, acknowledge, propagate
- `tables`: references to ClickHouse tables
- `catalog`: DAG versions, datasets, sources, runs and events
- `ui`: queries of the web UI
- `metrics`: metrics, counted from the tables
- `deadlock_retry`: retry of transactions that PostgreSQL aborts because of a deadlock
- `clock`: the database's clock

Schema:

- `models`: SQLModel classes of the tables
- `select_metaclass`: metaclass that lets SQLAlchemy select plain classes such as `Job`
- `migrate`: checks and migrates the schema
- `alembic_commands`: Alembic commands on a database
- `migrations`: Alembic migrations

Next: aaiclick.store.engine for tasks, aaiclick.store.tenancy for the tenant of a request.
"""
