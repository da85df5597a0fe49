"""Task graphs of jobs that are submitted as JSON."""

from aaiclick.api.jobs import JobRequest
from aaiclick.server.job_graph_builder import build_nodes


def test_json_job_builds_the_same_graph_as_python():
    job = JobRequest.model_validate(
        {
            "name": "j",
            "groups": [{"key": "g", "parent": "h"}, {"key": "h", "depends_on": ["a"]}],
            "tasks": [
                {"key": "a", "entrypoint": "m.a"},
                {"key": "b", "entrypoint": "m.b", "group": "g", "kwargs": {"x": {"object_type": "task", "task": "a"}}},
            ],
        }
    )
    g, h, a, b = build_nodes(job)
    assert (g.parent, h.predecessors, b.group, b.kwargs) == (h, [a], g, {"x": a})
