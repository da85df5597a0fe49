"""The web UI: pages rendered here, kept fresh by small scripts of our own; everything works without them."""
