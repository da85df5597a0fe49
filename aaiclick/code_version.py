"""Version of the user's code: the git commit, and a digest of each top-level module below a directory.

Two processes run the same code if the digests of the modules that both have are equal: the directory, the host and
other files make no difference. Nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

MAX_FILES = 20_000
"""Python files below a directory that are read; the rest is ignored."""
DIGEST_BYTES = 4
COMMIT_CHARACTERS = 8
IGNORED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
MAX_PARENTS = 40


@dataclass(frozen=True)
class SourceFile:
    """A Python file: its path below the directory, size and time of change."""

    path: Path
    relative: str
    size: int
    changed_ns: int


@dataclass(frozen=True)
class CodeVersion:
    """Version of the modules below a directory."""

    commit: str | None
    """Commit of the git repository that contains the directory."""
    digests: Mapping[str, str]
    """Digest of the files of each top-level module or package."""

    def __str__(self) -> str:
        """The start of the commit and a digest of all modules, as in `3f2a91cd-8c1d22aa`; without git the latter."""
        lines = "".join(f"{name}={digest}\n" for name, digest in sorted(self.digests.items()))
        parts = (self.commit and self.commit[:COMMIT_CHARACTERS], _hash(lines.encode()))
        return "-".join(part for part in parts if part)

    def to_list(self) -> list[str]:
        """Each module as `name=digest`, to be stored."""
        return [f"{name}={digest}" for name, digest in sorted(self.digests.items())]

    def list_differences(self, stored: Iterable[str]) -> list[str]:
        """Modules that another version, stored by `to_list`, has with other contents."""
        digests = dict(item.split("=", 1) for item in stored)
        return [name for name, digest in sorted(self.digests.items()) if digests.get(name, digest) != digest]


def read_code_version(directory: Path, ignored: Sequence[Path] = ()) -> CodeVersion:
    """Read the version of the modules below a directory, without `ignored` directories such as AAICLICK_HOME."""
    contents: dict[str, list[bytes]] = {}
    for file in sorted(list_source_files(directory, ignored), key=lambda file: file.relative):
        try:
            data = file.path.read_bytes()
        except OSError:
            continue
        module = file.relative.partition("/")[0].removesuffix(".py")
        contents.setdefault(module, []).append(f"{file.relative}\0{len(data)}\0".encode() + data)
    return CodeVersion(read_commit(directory), {name: _hash(*parts) for name, parts in contents.items()})


def list_source_files(directory: Path, ignored: Sequence[Path] = ()) -> list[SourceFile]:
    """Python files below a directory, except hidden directories, virtual environments and installed packages."""
    root = str(directory)
    if root == directory.anchor:
        return []
    skipped = {str(path) for path in ignored}
    files: list[SourceFile] = []
    for entry in _walk(root, skipped):
        try:
            status = entry.stat()
        except OSError:  # deleted meanwhile, or a broken link
            continue
        relative = entry.path[len(root) :].lstrip(os.sep).replace(os.sep, "/")
        files.append(SourceFile(Path(entry.path), relative, status.st_size, status.st_mtime_ns))
        if len(files) >= MAX_FILES:
            break
    return files


def _walk(directory: str, skipped: set[str]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as scan:
            entries = list(scan)
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in IGNORED_DIRECTORIES or entry.path in skipped:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, skipped)
        elif entry.name.endswith(".py"):
            yield entry


def read_commit(directory: Path) -> str | None:
    """Commit of the git repository around a directory, from its files; None if there is none."""
    for parent in [directory, *directory.parents][:MAX_PARENTS]:
        git = parent / ".git"
        try:
            if git.is_file():  # a worktree or submodule
                git = parent / git.read_text().partition("gitdir:")[2].strip()
            if git.is_dir():
                return _resolve_head(git)
        except (OSError, UnicodeDecodeError):
            return None
    return None


def _resolve_head(git: Path) -> str | None:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head
    reference = head.removeprefix("ref:").strip()
    common = git / "commondir"
    shared = git / common.read_text().strip() if common.exists() else git
    for candidate in (git / reference, shared / reference):
        if candidate.exists():
            return candidate.read_text().strip()
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {reference}")), None)


def _hash(*parts: bytes) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
