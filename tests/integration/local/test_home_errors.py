"""Error messages for an unusable AAICLICK_HOME: they name the directory and the remedy."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from aaiclick.errors import AaiclickError, HomeError, StackError
from aaiclick.local.home import Home

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def startup_error(stack) -> AaiclickError:
    with pytest.raises((HomeError, StackError)) as caught:
        stack.connection.require_servers("postgres", "clickhouse")
    return caught.value


def test_a_home_below_a_file(make_stack, tmp_path):
    (tmp_path / "file").touch()
    error = startup_error(make_stack(tmp_path / "file" / "home"))
    assert f"AAICLICK_HOME={tmp_path}/file/home cannot be used: Not a directory." in error.what
    assert "Set AAICLICK_HOME" in error.remedy


def test_a_home_that_is_a_file(make_stack, tmp_path):
    (tmp_path / "home").touch()
    assert "cannot be used: File exists" in startup_error(make_stack(tmp_path / "home")).what


def test_a_home_on_a_filesystem_that_takes_no_files(make_stack):
    assert "AAICLICK_HOME=/proc/aaiclick cannot be used" in startup_error(make_stack(Path("/proc/aaiclick"))).what


@needs_root
def test_a_home_of_another_user(make_stack, tmp_path):
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 12345, 12345)
    assert "belongs to another user (uid 12345)" in startup_error(make_stack(tmp_path / "home")).what


def test_a_home_made_by_a_newer_version(make_stack, tmp_path):
    Home(tmp_path / "home").prepare()
    (tmp_path / "home" / "format.json").write_text(json.dumps({"format": 99, "made_by": "9.9.9"}))
    error = startup_error(make_stack(tmp_path / "home"))
    assert "was made by aaiclick 9.9.9 (format 99)" in error.what
    assert "Upgrade aaiclick" in error.remedy


def test_a_damaged_home(make_stack, tmp_path):
    Home(tmp_path / "home").prepare()
    (tmp_path / "home" / "format.json").write_text("{")
    assert "format.json is damaged" in startup_error(make_stack(tmp_path / "home")).what


def test_lost_secrets_are_named(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home")
    stack.connection.clickhouse_endpoint()
    (tmp_path / "home" / "secrets.json").write_text("{}")
    with pytest.raises(HomeError, match=r"passwords of the embedded servers cannot be read from .*secrets\.json"):
        stack.connection.clickhouse_endpoint()


def test_a_cluster_of_another_postgres_version(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.postgres / "data").mkdir()
    (home.postgres / "data" / "PG_VERSION").write_text("12\n")
    error = startup_error(make_stack(home.path))
    assert "is of version 12; this aaiclick runs version 18" in error.what


def test_a_cluster_that_does_not_start_names_its_log(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.postgres / "data").mkdir(mode=0o700)
    (home.postgres / "data" / "PG_VERSION").write_text("18\n")
    error = startup_error(make_stack(home.path))
    assert "The embedded postgres server exited with" in error.what
    assert str(home.log_path("postgres")) in error.remedy


@needs_root
@pytest.mark.parametrize("megabytes", [1, 24])
def test_a_full_disk(make_stack, tmp_path, megabytes):
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(mount)], check=False
    ).returncode:
        pytest.skip("this system lets root mount nothing")
    try:
        error = startup_error(make_stack(mount / "home"))
        assert "No space left" in error.what or "No space is left" in error.what
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_a_directory_with_other_files_is_refused(make_stack, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "letters").touch()
    error = startup_error(make_stack(shared))
    assert "contains other files (letters" in error.what
    assert shared.stat().st_mode & 0o777 == 0o755


def test_lost_passwords_of_a_cluster_are_not_recreated(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.postgres / "data").mkdir()
    (home.path / "secrets.json").unlink()
    assert "secrets.json, which holds the passwords" in startup_error(make_stack(home.path)).what


def test_a_run_directory_that_is_a_link_is_refused(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.path.mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    home.run.symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in startup_error(make_stack(home.path)).what
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("text", ["99999", "-1", "1e999", "null", '"x"', "{"])
def test_a_damaged_port_file_is_ignored(make_stack, tmp_path, text):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.clickhouse / "port.json").write_text(text)
    (home.run / "clickhouse.json").write_text(text)
    assert make_stack(home.path).clickhouse("SELECT 1") == "1"


def test_a_cluster_with_an_unreadable_version_is_an_error_at_once(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.postgres / "data").mkdir(mode=0o700)
    (home.postgres / "data" / "PG_VERSION").write_bytes(b"\xff\xfe")
    assert "The embedded postgres server cannot be started" in startup_error(make_stack(home.path)).what
