"""Count the files of elmore that one call passes through.

    python benchmarks/code_path.py [PATH ...] [--list] [--package DIR]

The paths are `embed-one` (one sentence, Python), `embed-many` (70 sentences, Python),
`embed-command` (`elmore embed`, 70 lines), `task-train` (`elmore task train ner`, two updates on
word vectors) and `serve` (`POST /embed` to a running server). Each path runs in a process of its
own with `sys.setprofile`: once to warm up (imports, caches on disk, compiled code) and once to
count. `--list` names the files; `--package` measures another checkout, for comparison.

    files   files of the package in which at least one function was called
    moves   calls from a function of one file to a function of another; the caller is the nearest
            one inside the package; resuming a generator or coroutine is not a call
    links   distinct (calling file, called file) pairs
    depth   largest number of stack frames of the package

Module bodies are not counted, so imports are not moves.
"""

import argparse
import contextlib
import dis
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

PATHS = ("embed-one", "embed-many", "embed-command", "task-train", "serve")
SENTENCES = [f"I left it at the bank , number {number} ." for number in range(70)]


class Tracer:
    """Count calls between files of a package, in all threads started after it was installed."""

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package}{os.sep}"
        self.recording = False
        self.links: Counter[tuple[str, str]] = Counter()
        self.files: set[str] = set()
        self.depth = 0
        self._bytecode: dict[CodeType, bytes] = {}
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)

    def _file(self, frame: FrameType) -> str | None:
        code = frame.f_code
        if code.co_name == "<module>" or not code.co_filename.startswith(self._prefix):
            return None
        return code.co_filename.removeprefix(self._prefix)

    def _is_resumed(self, frame: FrameType) -> bool:
        """Return whether a generator or coroutine is resumed rather than entered."""
        code = frame.f_code
        if code not in self._bytecode:
            self._bytecode[code] = code.co_code
        instruction, argument = self._bytecode[code][frame.f_lasti : frame.f_lasti + 2]
        return instruction == dis.opmap["RESUME"] and argument & 3 != 0

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.recording or event != "call" or self._is_resumed(frame):
            return
        called = self._file(frame)
        if called is None:
            return
        callers = []
        outer = frame.f_back
        while outer is not None:
            callers.append(self._file(outer))
            outer = outer.f_back
        inside = [file for file in callers if file is not None]
        self.files.add(called)
        self.depth = max(self.depth, 1 + len(inside))
        if inside and inside[0] != called:
            self.links[inside[0], called] += 1

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Count calls inside a with block."""
        self.recording = True
        try:
            yield
        finally:
            self.recording = False

    def result(self) -> dict[str, object]:
        """Return what was counted, as JSON data."""
        return {
            "files": sorted(self.files),
            "moves": self.links.total(),
            "links": len(self.links),
            "depth": self.depth,
        }


def run_command(*arguments: object) -> None:
    from elmore.cli import main as run

    sys.argv = ["elmore", *map(str, arguments)]
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        run()


def trace_embed(tracer: Tracer, count: int) -> None:
    import elmore

    embedder = elmore.load()
    embedder.embed(SENTENCES[:count])
    with tracer.record():
        embedder.embed([sentence.replace("bank", "shore") for sentence in SENTENCES[:count]])


def trace_embed_command(tracer: Tracer, folder: Path) -> None:
    text = folder / "text.txt"
    text.write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    run_command("embed", text, "-o", folder / "warm.npz")
    with tracer.record():
        run_command("embed", text, "-o", folder / "out.npz")


def trace_task_train(tracer: Tracer, folder: Path) -> None:
    vectors, examples = folder / "vectors.txt", folder / "examples.txt"
    words = [*"abcdefgh", "Ann", "Rome"]
    draw = random.Random(0)
    vectors.write_text(
        "".join(f"{w} {' '.join(f'{draw.random():.3f}' for _ in range(8))}\n" for w in words)
    )
    sentence = "Ann B-person\na O\nb O\nRome B-location\n\n"
    examples.write_text(sentence * 16)
    settings = ["batch_size=8", "train.epochs=1", "model.hidden_dim=8", "model.num_layers=1"]
    files = ["--train", examples, "--dev", examples, "--embedder", f"glove:{vectors}"]
    options = [part for setting in settings for part in ("--set", setting)]
    run_command("task", "train", "ner", *files, "-o", folder / "warm", *options)
    with tracer.record():
        run_command("task", "train", "ner", *files, "-o", folder / "run", *options)


def trace_serve(tracer: Tracer) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def post(text: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"texts": [text]})
        connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
        assert connection.getresponse().read(1)
        connection.close()

    def ask() -> None:
        for _ in range(600):
            try:
                post(SENTENCES[0])
                break
            except OSError:
                time.sleep(0.1)
        time.sleep(0.5)  # until the server has nothing left to do for the first request
        with tracer.record():
            post(SENTENCES[1].replace("bank", "shore"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=ask, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        run_command("serve", "--port", port)


def trace(name: str) -> dict[str, object]:
    import elmore

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tracer = Tracer(Path(elmore.__file__).parent)
        kinds: dict[str, Callable[[], None]] = {
            "embed-one": lambda: trace_embed(tracer, 1),
            "embed-many": lambda: trace_embed(tracer, 70),
            "embed-command": lambda: trace_embed_command(tracer, folder),
            "task-train": lambda: trace_task_train(tracer, folder),
            "serve": lambda: trace_serve(tracer),
        }
        kinds[name]()
        sys.setprofile(None)
        return tracer.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--list", action="store_true", help="name the files as well")
    parser.add_argument("--package", type=Path, help="folder that holds the package to measure")
    parser.add_argument("--child", choices=PATHS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(trace(args.child)))
        return
    package = (args.package or Path(__file__).parent.parent).resolve()
    print("| path | files | moves | links | depth |\n|---|---|---|---|---|")
    for name in args.paths or PATHS:
        found = subprocess.run(
            [sys.executable, __file__, "--child", name],
            env={**os.environ, "PYTHONPATH": str(package)},
            stdout=subprocess.PIPE,
            check=True,
        )
        result = json.loads(found.stdout.splitlines()[-1])
        numbers = [len(result["files"]), result["moves"], result["links"], result["depth"]]
        print(f"| {name} | {' | '.join(map(str, numbers))} |", flush=True)
        if args.list:
            print("\n".join(f"  {file}" for file in result["files"]))


if __name__ == "__main__":
    main()
