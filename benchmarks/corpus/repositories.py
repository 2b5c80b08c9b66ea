"""Read the list of sources (`sources.toml`), and their files from the clones."""

import fnmatch
import hashlib
import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BYTES_PER_TASK = 4_000_000
# a partial clone would fetch what it lacks
WITHOUT_NETWORK = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}


class Repository(NamedTuple):
    """A repository, the commit that is read, and the glob patterns of its files that are."""

    name: str  # owner/name
    commit: str
    files: list[str]


class Source(NamedTuple):
    """Text of one kind: where it is, how it is read, under what licence, and how much is taken."""

    name: str
    reader: str
    licence: str
    repositories: list[Repository]
    min_words: int = 12  # of a paragraph
    max_words: int = 1 << 62  # of the source


class Task(NamedTuple):
    """Files that one process reads at a time."""

    clone: Path
    blobs: list[str]
    reader: str
    min_words: int


def load_sources(path: Path) -> list[Source]:
    """Read `sources.toml`."""
    with path.open("rb") as file:
        tables = tomllib.load(file)["source"]
    try:
        for table in tables:
            table["repositories"] = [Repository(**each) for each in table["repositories"]]
        return [Source(**table) for table in tables]
    except (TypeError, KeyError) as error:  # a key too many, or too few
        raise SystemExit(f"{path}: not a table of sources ({error})") from error


def find_clone(folder: Path, name: str) -> Path:
    """Return the clone of owner/name below a folder."""
    owner, short = name.split("/")
    candidates = (
        f"{owner}+{short}/repo",
        f"{owner}/{short}",
        f"{owner}/{short}.git",
        short,
        f"{short}.git",
    )
    for candidate in candidates:
        if (folder / candidate).is_dir():
            return folder / candidate
    raise SystemExit(
        f"{folder}: no clone of {name}; run `git clone --bare https://github.com/{name}` there"
    )


def list_blobs(clone: Path, repository: Repository) -> Iterator[tuple[str, str, int]]:
    """Yield path, blob and size of the files of a repository that its patterns name."""
    command = ["git", "-C", str(clone), "ls-tree", "-r", "-z", "-l", repository.commit]
    listed = subprocess.run(command, check=False, capture_output=True, env=WITHOUT_NETWORK)
    if listed.returncode:
        raise SystemExit(
            f"{clone}: commit {repository.commit} of {repository.name} cannot be read "
            f"({listed.stderr.decode(errors='replace').strip()}); fetch it there"
        )
    for entry in listed.stdout.decode(errors="replace").split("\0")[:-1]:
        about, path = entry.split("\t", 1)
        _, kind, blob, size = about.split()
        expected = any(fnmatch.fnmatchcase(path, pattern) for pattern in repository.files)
        if (
            kind == "blob" and expected and size.isdigit()
        ):  # a blob that the clone lacks has no size
            yield path, blob, int(size)


def list_tasks(clones: Path, source: Source, seed: int) -> Iterator[Task]:
    """Yield the files of a source in tasks of a few megabytes; the seed decides their order."""
    for repository in source.repositories:
        clone = find_clone(clones, repository.name)
        blobs = sorted(
            list_blobs(clone, repository),
            key=lambda entry: hashlib.blake2b(
                f"{seed} {entry[0]}".encode(), digest_size=8
            ).digest(),
        )
        batch, size = [], 0
        for _, blob, num_bytes in blobs:
            batch.append(blob)
            size += num_bytes
            if size >= BYTES_PER_TASK:
                yield Task(clone, batch, source.reader, source.min_words)
                batch, size = [], 0
        if batch:
            yield Task(clone, batch, source.reader, source.min_words)


def read_blobs(clone: Path, blobs: list[str]) -> Iterator[bytes]:
    """Yield the content of blobs; those that are absent are passed over."""
    command = ["git", "-C", str(clone), "cat-file", "--batch"]
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    answer = subprocess.run(
        command, input=asked, check=True, capture_output=True, env=WITHOUT_NETWORK
    ).stdout
    at = 0
    while at < len(answer):
        line_end = answer.index(b"\n", at)
        header = answer[at:line_end].split()
        at = line_end + 1
        if header[1] != b"missing":
            size = int(header[2])
            yield answer[at : at + size]
            at += size + 1
