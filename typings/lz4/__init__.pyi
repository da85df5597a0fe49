"""Types of the part of lz4 that aaiclick uses."""
