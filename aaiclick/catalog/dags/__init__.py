"""DAGs as YAML files: read with places, checked as a whole, identified by content, compared."""
