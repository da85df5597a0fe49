"""Faults strike where and as often as they were asked to, and nowhere by themselves."""

import pytest

from aaiclick import faults


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


async def commit(name: str) -> None:
    async with faults.statement(name):
        pass


async def test_nothing_is_armed_by_itself():
    assert faults.statement("claim") is faults.statement("complete")


async def test_an_error_strikes_once_at_its_place():
    faults.arm("claim.after=error")
    await commit("start")
    with pytest.raises(faults.FaultError, match=r"claim\.after"):
        await commit("claim")
    await commit("claim")


async def test_the_third_time():
    faults.arm("claim.before=error@3, start.before=error")
    await commit("claim")
    await commit("claim")
    with pytest.raises(faults.FaultError):
        await commit("claim")
    with pytest.raises(faults.FaultError):
        await commit("start")


async def test_with_marks_it_strikes_once_in_all_processes(tmp_path):
    (tmp_path / "claim.before").touch()
    faults.arm("claim.before=error,claim.after=error", str(tmp_path))
    with pytest.raises(faults.FaultError, match=r"claim\.after"):
        await commit("claim")
    assert (tmp_path / "claim.after").exists()


def test_a_word_that_means_nothing_is_refused():
    with pytest.raises(ValueError, match="PLACE=kill"):
        faults.arm("claim.before=explode")
