"""Script injection: HTML, scripts and template syntax in all stored names and messages."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

HOSTILE = (
    "<script>boom()</script>",
    '"><img src=x onerror=boom()>',
    "'-boom()-'",
    "</title><svg onload=boom()>",
    "{{ 7 * 7 }} {% raw %}",
    "javascript:boom()",
    "</pre><iframe srcdoc='<script>parent.boom()</script>'>",
)


@pytest.fixture(scope="module")
def hostile(site) -> dict[str, str]:
    """Creates jobs, tasks, keys, users and organisations with hostile names and messages."""
    payload = " ".join(HOSTILE)
    job = site.job(
        payload[:190],
        {"key": payload[:190], "entrypoint": "fail", "kwargs": {"text": payload}, "group": "g"},
        {"key": "talk", "entrypoint": "say", "kwargs": {"text": payload}},
        groups=[{"key": "g", "name": payload[:190]}],
    )
    item = site.api(
        "POST",
        "/v1/tasks",
        {
            "items": [
                {
                    "type": payload[:190],
                    "queue": payload[:190],
                    "entrypoint": "tests.e2e.ui.tasks.fail",
                    "payload": {"text": payload},
                    "max_attempts": 1,
                }
            ]
        },
    )["ids"][0]
    site.api("POST", "/v1/keys", {"name": payload[:190], "scopes": ["reader"]})
    site.api("POST", "/v1/users", {"external_id": payload, "role": "reader", "email": payload[:190]})
    site.api("POST", "/v1/orgs", {"name": payload[:190], "slug": "hostile"})
    site.ended(job)
    site.until(f"SELECT completed_at IS NOT NULL AS ok FROM tasks WHERE id = {item}")
    task = site.sql("SELECT id FROM tasks WHERE job_id = $1 AND status <> 'COMPLETED'", int(job))[0]["id"]
    return {"job": job, "task": str(task), "item": item}


def test_stored_scripts_are_not_executed(site, visit, hostile) -> None:
    visitor = visit("admin")
    booms: list[str] = []
    visitor.page.expose_function("boom", lambda: booms.append(visitor.page.url))
    visitor.page.on("dialog", lambda dialog: booms.append(dialog.message))
    job, task, item = hostile["job"], hostile["task"], hostile["item"]
    for path in (
        "/",
        "/jobs",
        f"/jobs/{job}",
        f"/jobs/{job}?view=timeline",
        f"/jobs/{job}?view=tasks",
        f"/jobs/{job}?view=log",
        f"/jobs/{job}?view=events",
        f"/tasks/{task}",
        f"/tasks/{item}",
        f"/tasks/{task}/clear",
        "/queues",
        "/admin",
        "/dead-letters?list=1",
        "/admin?view=secrets",
        "/admin?view=users",
        "/admin?view=orgs",
        "/admin?view=audit",
        "/search?q=%3Cscript%3Eboom()%3C/script%3E",
        "/jobs?q=%22%3E%3Cimg%20src=x%20onerror=boom()%3E",
    ):
        page = visitor.go(path)
        assert page.locator("img, iframe, main script, main style").count() == 0, path
    page = visitor.go("/search")
    page.keyboard.press("Control+k")
    page.keyboard.type("<script>")
    expect(page.locator("dialog .results a").first).to_contain_text("<script>boom()</script>")
    assert booms == []
