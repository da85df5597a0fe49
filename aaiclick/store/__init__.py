"""All PostgreSQL: the models, the migrations, the connections. Nothing outside this package speaks SQL to it."""
