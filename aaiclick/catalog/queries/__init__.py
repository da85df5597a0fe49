"""SQL over datasets: read, checked, rewritten to tables, traced from columns to columns."""
