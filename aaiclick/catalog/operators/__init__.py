"""Operators: what a job of a DAG does. A registry by name, typed settings, and the pure part of each one's logic."""
