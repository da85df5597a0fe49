"""Geometry of charts and graphs, computed by pure functions and rendered as SVG by templates.

- `collapse_tasks`: groups the tasks of a job into nodes of the graph
- `graph_layout`: layered graph layout (Sugiyama)
- `job_graph`: boxes and frames of a job's graph
- `gantt`: Gantt chart of a job, with the critical path
- `dag_graph`: graphs of definitions and of lineage
- `charts`: line charts, stacked bar charts and sparklines

Next: aaiclick.server.ui.templating, which renders them.
"""
