"""Children by fork: they come, they end, and it is known how."""

import asyncio
import os
import signal
import socket

import psutil
import pytest

from aaiclick.orchestration.worker.template import Template, TemplateLostError


@pytest.fixture
async def template():
    template = Template.spawn("tests.unit.worker.template_of_echoes")
    yield template
    await template.close()


class Child:
    def __init__(self, pid, end):
        self.pid = pid
        self._end = end

    @classmethod
    async def of(cls, template):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            return cls(await template.start(theirs), ours)
        except OSError:
            ours.close()
            raise

    async def say(self, word):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._end, f"{word}\n".encode())
        return (await loop.sock_recv(self._end, 100)).decode().split()

    def close(self):
        self._end.close()


@pytest.mark.parametrize(("word", "code"), [("exit", 7), ("die", -9), ("break", 1), ("hello", -9)])
async def test_how_a_child_ended_is_known(template, word, code):
    child, neighbour = await Child.of(template), await Child.of(template)
    said = await child.say(word)
    assert bool(said) is (word == "hello")
    assert await template.end(child.pid) == code
    assert int((await neighbour.say("hello"))[0]) == neighbour.pid, "nobody else is touched"
    child.close()
    neighbour.close()


async def test_how_a_child_ended_is_known_also_when_it_is_asked_late(template):
    child = await Child.of(template)
    await child.say("exit")
    others = [await Child.of(template) for _ in range(3)]
    assert await template.end(child.pid) == 7
    for other in (child, *others):
        other.close()


async def test_children_are_many_and_each_is_its_own(template):
    children = await asyncio.gather(*(Child.of(template) for _ in range(20)))
    said = [await child.say("hello") for child in children]
    assert [int(pid) for pid, _ in said] == [child.pid for child in children]
    assert len({pid for pid, _ in said}) == 20
    for child in children:
        child.close()


async def test_who_asked_and_went_away_does_not_spoil_the_next_answer(template):
    ours, theirs = socket.socketpair()
    gone = asyncio.create_task(template.start(theirs))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    ours.close()
    child = await Child.of(template)
    assert int((await child.say("hello"))[0]) == child.pid
    child.close()


async def test_a_template_that_is_told_to_stop_goes_on_and_one_that_is_killed_is_missed(template):
    child = await Child.of(template)
    it = int((await child.say("hello"))[1])
    os.kill(it, signal.SIGTERM)
    os.kill(child.pid, signal.SIGTERM)
    other = await Child.of(template)
    assert int((await other.say("hello"))[1]) == it
    assert int((await child.say("hello"))[0]) == child.pid
    os.kill(it, signal.SIGKILL)
    with pytest.raises(TemplateLostError):
        await Child.of(template)
    child.close()
    other.close()


async def test_children_end_with_their_template():
    template = Template.spawn("tests.unit.worker.template_of_echoes")
    child = await Child.of(template)
    process = psutil.Process(child.pid)
    await template.close()
    assert not (await asyncio.to_thread(psutil.wait_procs, [process], 10))[1]
    child.close()
