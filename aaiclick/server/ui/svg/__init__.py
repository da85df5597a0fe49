"""Drawings: geometry is computed here by pure functions, templates write it down."""
