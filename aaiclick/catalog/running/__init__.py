"""Tasks of definitions: what they read, the operators that run in them, and how their rows are put in place."""
