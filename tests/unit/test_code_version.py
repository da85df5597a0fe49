"""Version of the user's code: commit, digests of modules, and which files count."""

import subprocess

import pytest

from aaiclick.code_version import list_source_files, read_code_version, read_commit


@pytest.fixture
def project(tmp_path):
    for name, text in {
        "orders.py": "a = 1\n",
        "shop/__init__.py": "",
        "shop/prices.py": "b = 2\n",
        "notes.txt": "no code",
        ".hidden/x.py": "",
        "venv/pyvenv.cfg": "",
        "venv/lib/y.py": "",
        "node_modules/z.py": "",
        "home/data.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def read_version(project):
    return read_code_version(project, [project / "home"])


def test_only_source_files_of_the_project_count(project):
    files = list_source_files(project, [project / "home"])
    assert sorted(file.relative for file in files) == ["orders.py", "shop/__init__.py", "shop/prices.py"]
    assert list_source_files(project / "missing") == []


def test_version_changes_with_the_contents_of_a_module(project):
    before = read_version(project)
    assert set(before.digests) == {"orders", "shop"}
    assert before.list_differences(before.to_list()) == []
    (project / "shop/prices.py").write_text("b = 3\n")
    after = read_version(project)
    assert after.list_differences(before.to_list()) == ["shop"]
    assert str(after) != str(before)


def test_modules_that_only_one_side_has_make_no_difference(project):
    version = read_version(project)
    assert version.list_differences(["other=00000000", *version.to_list()[:1]]) == []


def test_renamed_file_of_a_package_is_a_difference(project):
    before = read_version(project)
    (project / "shop/prices.py").rename(project / "shop/costs.py")
    assert read_version(project).list_differences(before.to_list()) == ["shop"]


def test_commit_is_read_from_repositories_and_worktrees(project):
    assert read_commit(project / "shop") is None

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
        return subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert read_commit(project) is None
    git("add", "orders.py")
    git("commit", "-qm", "First")
    commit = git("rev-parse", "HEAD")
    assert read_commit(project / "shop") == commit
    assert str(read_version(project)).startswith(f"{commit[:8]}-")
    git("worktree", "add", "-q", "home/other")
    assert read_commit(project / "home/other") == commit
    git("pack-refs", "--all")
    assert read_commit(project) == commit
    git("checkout", "-q", "--detach")
    assert read_commit(project) == commit
