"""The HTTP service: one API for people, programs and remote workers.

`app.create_app` makes it, `run.serve` runs it. Nothing is imported here: FastAPI is heavy, and `aaiclick up` opens the
socket long before it is needed.
"""
