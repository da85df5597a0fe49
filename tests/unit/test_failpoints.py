"""Failpoints: faults trigger at the configured commit, as often as configured."""

import pytest

from aaiclick import failpoints


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.arm_faults("")


async def commit(name: str) -> None:
    async with failpoints.statement(name):
        pass


async def test_no_failpoint_is_armed_by_default():
    assert failpoints.statement("claim") is failpoints.statement("complete")


async def test_error_fault_triggers_once_at_its_failpoint():
    failpoints.arm_faults("claim.after=error")
    await commit("start")
    with pytest.raises(failpoints.FaultError, match=r"claim\.after"):
        await commit("claim")
    await commit("claim")


async def test_fault_can_skip_the_first_passes():
    failpoints.arm_faults("claim.before=error@3, start.before=error")
    await commit("claim")
    await commit("claim")
    with pytest.raises(failpoints.FaultError):
        await commit("claim")
    with pytest.raises(failpoints.FaultError):
        await commit("start")


async def test_marker_files_limit_a_fault_to_one_process(tmp_path):
    (tmp_path / "claim.before").touch()
    failpoints.arm_faults("claim.before=error,claim.after=error", str(tmp_path))
    with pytest.raises(failpoints.FaultError, match=r"claim\.after"):
        await commit("claim")
    assert (tmp_path / "claim.after").exists()


def test_unknown_fault_mode_is_refused():
    with pytest.raises(ValueError, match="FAILPOINT=kill"):
        failpoints.arm_faults("claim.before=explode")
