"""Live changes: what listeners hear, what they missed, and what many of them cost."""

from __future__ import annotations

import asyncio
import json

import httpx
import psutil

from aaiclick.store import control

LISTENERS = 200


def submit(site, name: str, role: str = "writer") -> str:
    return site.as_(role).post("/v1/jobs", json={"name": name, "entrypoint": "m.f"}).json()["id"]


class Stream:
    """Events of a stream, one after the other."""

    def __init__(self, response, begins: str = "ready") -> None:
        self._lines = response.iter_lines()
        assert next(self._lines) == ": hello"
        self.first_id = self.next(begins)[0] if begins else ""

    def next(self, kind: str = "job") -> tuple[str, dict]:
        """Id and data of the next event, which is of this kind."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, colon, value = line.partition(": ")
            if colon and name:
                fields[name] = value
            elif "event" in fields:
                assert fields["event"] == kind
                return fields["id"], json.loads(fields["data"])
        raise AssertionError("the stream ended")


def listening(site, role="reader", **options):
    return site.as_(role).stream("GET", "/v1/events", **options)


def test_a_job_is_heard_of_from_its_beginning_to_its_end(site) -> None:
    with listening(site) as response:
        stream = Stream(response)
        job_id = submit(site, "watched")
        assert stream.next()[1] == {
            "id": job_id, "name": "watched", "status": "PENDING", "total_tasks": 1, "open_tasks": 1, "failed_tasks": 0,
            "cancelled_tasks": 0, "paused": False,
        }  # fmt: skip
        site.run(lambda connection: control.cancel_job(connection, int(job_id)))
        assert stream.next()[1]["status"] == "CANCELLED"


def test_nothing_is_heard_of_another_organisation(site) -> None:
    with listening(site) as ours, listening(site, "other-reader") as theirs:
        stream, other = Stream(ours), Stream(theirs)
        job_id = submit(site, "ours")
        assert stream.next()[1]["id"] == job_id
        their_id = submit(site, "theirs", "other-writer")
        assert other.next()[1]["id"] == their_id


def test_who_comes_back_hears_what_was_missed(site) -> None:
    with listening(site) as response:
        last = Stream(response).first_id
    missed = [submit(site, f"missed {number}") for number in range(3)]
    with listening(site, headers={"Last-Event-ID": last}) as response:
        stream = Stream(response, begins="")
        heard = [stream.next() for _ in missed]
    assert [data["id"] for _, data in heard] == missed
    with listening(site, headers={"Last-Event-ID": heard[1][0]}) as response:
        assert Stream(response, begins="").next()[1]["id"] == missed[2]


def test_who_comes_back_too_late_is_told_to_look_anew(site) -> None:
    for unknown in ("nonsense", "0123456789ab-7", "-", "x" * 100):
        with listening(site, headers={"Last-Event-ID": unknown}) as response:
            Stream(response, begins="reset")


def test_one_job_alone_is_followed(site) -> None:
    job_id = submit(site, "mine")
    with listening(site, params={"job_id": job_id}) as response:
        stream = Stream(response)
        submit(site, "another")
        site.run(lambda connection: control.cancel_job(connection, int(job_id)))
        assert (stream.next()[1]["id"], job_id) == (job_id, job_id)
    assert site.as_("other-reader").get("/v1/events", params={"job_id": job_id}).status_code == 404


async def test_many_listeners_hold_little_memory_and_one_connection(site) -> None:
    process = psutil.Process(site.server.process.pid)
    limits = httpx.Limits(max_connections=LISTENERS + 10)
    headers = {"Authorization": f"Bearer {site.keys['reader']}"}
    ready = asyncio.Semaphore(0)

    async def listen(client) -> None:
        async with client.stream("GET", "/v1/events") as response:
            async for line in response.aiter_lines():
                if line == "event: ready":
                    ready.release()
                if "wanted" in line:
                    return

    async with httpx.AsyncClient(base_url=site.server.url, headers=headers, limits=limits, timeout=60) as client:
        before = process.memory_info().rss
        listeners = [asyncio.create_task(listen(client)) for _ in range(LISTENERS)]
        for _ in listeners:
            await ready.acquire()
        grown = process.memory_info().rss - before
        looking = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '-- Jobs of the orgs%'"
        )
        sessions = await asyncio.to_thread(site.sql, looking)
        await asyncio.to_thread(submit, site, "wanted")
        await asyncio.gather(*listeners)
    assert grown < LISTENERS * 200_000, f"{grown / LISTENERS:.0f} bytes each"
    assert len(sessions) == 1
