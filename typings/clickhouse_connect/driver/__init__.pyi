"""The driver of clickhouse-connect."""
