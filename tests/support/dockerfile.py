"""Read a Dockerfile, and follow its steps in clean root folders where no Docker daemon can run.

Used by tests/test_dockerfile. Each stage is a folder that becomes / (chroot, in namespaces of its
own). It has the system folders of this machine, read-only, and its Python in place of the image's;
everything else is what the steps of the Dockerfile put there. `apt-get` is not run: the system
folders must have what it would install.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

PYTHON = sys.base_prefix
SYSTEM = ("bin", "etc", "lib", "lib64", "sbin", "usr")
LOOPBACK = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x49))"  # SIOCSIFFLAGS, up
)


def read(path: Path) -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, the FROM first."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines()]
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, lines):
        name, _, value = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, value.strip()))
    return stages


def value(stage: list[tuple[str, str]], name: str) -> str:
    """Return the value of the last instruction of that name."""
    return [value for instruction, value in stage if instruction == name][-1]


def health_command(stage: list[tuple[str, str]]) -> list[str]:
    """Return the command of the health check."""
    return json.loads(value(stage, "HEALTHCHECK").partition("CMD ")[2])


def ignored(path: str, patterns: list[str]) -> bool:
    """Return whether a .dockerignore leaves a file out: the last pattern that matches counts."""
    result = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        parts = path.split("/")
        heads = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        names = parts if wanted.startswith("**/") else []
        if any(fnmatch(each, wanted) for each in heads) or wanted.removeprefix("**/") in names:
            result = not pattern.startswith("!")
    return result


@dataclass
class Stage:
    """A root folder, and how a process in it starts."""

    root: Path
    mounts: list[Path]
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"

    def run(self, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the root folder, with a network of its own if `alone`."""
        alone = ("--net",) if options.pop("alone", False) else ()
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        inside = f"cd {shlex.quote(self.directory)} && {command}"
        start = ["chroot", self.root, "/usr/bin/env", "-i", *settings, "/bin/sh", "-ec", inside]
        script = "\n".join([*self._mounting(), shlex.join(map(str, start))])
        namespaces = ["unshare", "--mount", "--pid", "--fork", *alone]
        return subprocess.run(
            [*namespaces, "/bin/sh", "-ec", script], capture_output=True, text=True, **options
        )

    def _mounting(self) -> list[str]:
        lines = []
        for source in (
            *(Path("/", name) for name in SYSTEM),
            *self.mounts,
            Path("/sys"),
            Path("/dev"),
        ):
            target = self.root / source.relative_to("/")
            if source.is_symlink():
                if not target.is_symlink():
                    target.symlink_to(source.readlink())
            elif source.exists():
                target.mkdir(parents=True, exist_ok=True)
                lines.append(f"mount --bind {source} {target}")
                if source != Path("/dev"):
                    lines.append(f"mount -o remount,bind,ro {target}")
        (self.root / "proc").mkdir(exist_ok=True)
        return [*lines, f"mount -t proc proc {self.root / 'proc'}"]


def build(context: Path, place: Path, *, mounts: list[Path], environment: dict[str, str]) -> Stage:
    """Follow the steps of a Dockerfile, and return its last stage."""
    patterns = (context / ".dockerignore").read_text("utf-8").split()
    done: dict[str, Stage] = {}
    stage = Stage(place, [])
    for number, steps in enumerate(read(context / "Dockerfile")):
        stage = _new_stage(place / str(number), mounts)
        for name, text in steps:
            if name == "FROM":
                done[text.partition(" AS ")[2]] = stage
            elif name == "RUN":
                _run(stage, text, environment)
            elif name == "COPY":
                _copy(stage, text, context, patterns, done)
            elif name == "ENV":
                for pair in shlex.split(text):
                    key, _, setting = pair.partition("=")
                    stage.environment[key] = setting.replace("$PATH", stage.environment["PATH"])
            elif name == "WORKDIR":
                stage.directory = text
                (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return stage


def _new_stage(root: Path, mounts: list[Path]) -> Stage:
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    path = f"{PYTHON}/bin:/usr/bin:/bin"
    return Stage(root, [Path(PYTHON), *mounts], {"PATH": path, "HOME": "/tmp"})


def _run(stage: Stage, command: str, environment: dict[str, str]) -> None:
    if command.startswith("apt-get"):
        packages = re.findall(r"(?<= )lib[\w.-]+", command)
        subprocess.run(["dpkg", "-s", *packages], check=True, capture_output=True)
        return
    usual = stage.environment
    stage.environment = usual | environment
    done = stage.run(command)
    stage.environment = usual
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def _copy(
    stage: Stage, text: str, context: Path, patterns: list[str], done: dict[str, Stage]
) -> None:
    *sources, target = text.split()
    root = context
    if sources[0].startswith("--from="):
        root = done[sources.pop(0).removeprefix("--from=")].root
    into = stage.root / (Path(stage.directory) / target).as_posix().lstrip("/")
    for source in sources:
        origin = root / source.lstrip("/")
        if root == context:
            assert not ignored(source, patterns), f".dockerignore leaves {source} out"
        if origin.is_dir():
            leave_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(origin, into, symlinks=True, ignore=leave_out, dirs_exist_ok=True)
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, into)
