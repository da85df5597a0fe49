"""Change feed: events, missed events after a reconnect, and the cost of many subscribers."""

from __future__ import annotations

import asyncio
import json

import httpx
import psutil

from aaiclick.store.engine import user_actions
from aaiclick.store.statements import statement

SUBSCRIBERS = 200


def submit(site, name: str, role: str = "writer") -> str:
    return site.as_(role).post("/v1/jobs", json={"name": name, "entrypoint": "m.f"}).json()["id"]


class Stream:
    """Iterates over the events of a stream."""

    def __init__(self, response, begins: str = "ready") -> None:
        self._lines = response.iter_lines()
        assert next(self._lines) == ": hello"
        self.first_id = self.next(begins)[0] if begins else ""

    def next(self, event_name: str = "job") -> tuple[str, dict]:
        """Id and data of the next event, which must have this name."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, colon, value = line.partition(": ")
            if colon and name:
                fields[name] = value
            elif "event" in fields:
                assert fields["event"] == event_name
                return fields["id"], json.loads(fields["data"])
        raise AssertionError("the stream ended")


def listening(site, role="reader", **options):
    return site.as_(role).stream("GET", "/v1/events", **options)


def test_stream_reports_a_job_from_start_to_end(site) -> None:
    with listening(site) as response:
        stream = Stream(response)
        job_id = submit(site, "watched")
        assert stream.next()[1] == {
            "id": job_id, "name": "watched", "status": "PENDING", "total_tasks": 1, "open_tasks": 1, "failed_tasks": 0,
            "cancelled_tasks": 0, "paused": False,
        }  # fmt: skip
        site.run(lambda connection: user_actions.cancel_job(connection, int(job_id)))
        assert stream.next()[1]["status"] == "CANCELLED"


def test_stream_has_no_jobs_of_other_organisations(site) -> None:
    with listening(site) as response, listening(site, "other-reader") as other_response:
        stream, other = Stream(response), Stream(other_response)
        job_id = submit(site, "ours")
        assert stream.next()[1]["id"] == job_id
        their_id = submit(site, "theirs", "other-writer")
        assert other.next()[1]["id"] == their_id


def test_reconnecting_client_receives_missed_events(site) -> None:
    with listening(site) as response:
        last = Stream(response).first_id
    missed = [submit(site, f"missed {number}") for number in range(3)]
    with listening(site, headers={"Last-Event-ID": last}) as response:
        stream = Stream(response, begins="")
        events = [stream.next() for _ in missed]
    assert [data["id"] for _, data in events] == missed
    with listening(site, headers={"Last-Event-ID": events[1][0]}) as response:
        assert Stream(response, begins="").next()[1]["id"] == missed[2]


def test_client_that_reconnects_too_late_receives_reset(site) -> None:
    for unknown in ("nonsense", "0123456789ab-7", "-", "x" * 100):
        with listening(site, headers={"Last-Event-ID": unknown}) as response:
            Stream(response, begins="reset")


def test_stream_of_one_job_has_only_its_events(site) -> None:
    job_id = submit(site, "mine")
    with listening(site, params={"job_id": job_id}) as response:
        stream = Stream(response)
        submit(site, "another")
        site.run(lambda connection: user_actions.cancel_job(connection, int(job_id)))
        assert (stream.next()[1]["id"], job_id) == (job_id, job_id)
    assert site.as_("other-reader").get("/v1/events", params={"job_id": job_id}).status_code == 404


async def test_many_subscribers_use_little_memory_and_one_connection(site) -> None:
    process = psutil.Process(site.server.process.pid)
    limits = httpx.Limits(max_connections=SUBSCRIBERS + 10)
    headers = {"Authorization": f"Bearer {site.keys['reader']}"}
    ready = asyncio.Semaphore(0)

    async def subscribe(client) -> None:
        async with client.stream("GET", "/v1/events") as response:
            async for line in response.aiter_lines():
                if line == "event: ready":
                    ready.release()
                if "wanted" in line:
                    return

    async with httpx.AsyncClient(base_url=site.server.url, headers=headers, limits=limits, timeout=60) as client:
        before = process.memory_info().rss
        subscribers = [asyncio.create_task(subscribe(client)) for _ in range(SUBSCRIBERS)]
        for _ in subscribers:
            await ready.acquire()
        grown = process.memory_info().rss - before
        polling = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND starts_with(query, left($1, 500))"
        )
        sessions = await asyncio.to_thread(site.sql, polling, statement("list_changed_jobs"))
        await asyncio.to_thread(submit, site, "wanted")
        await asyncio.gather(*subscribers)
    assert grown < SUBSCRIBERS * 200_000, f"{grown / SUBSCRIBERS:.0f} bytes per subscriber"
    assert len(sessions) == 1
