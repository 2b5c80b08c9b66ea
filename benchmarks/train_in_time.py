"""Train a biLM on a machine that is lent for a while: as many updates as fit into the time.

    sha256sum *.txt.xz > SHA256SUMS                       # beside the text; copy this file last
    setsid python benchmarks/train_in_time.py english-large TEXT OUT --until SECONDS \
        --valid valid.txt.xz --vocabulary vocabulary.txt --storage int6 --set train.lr=1.5e-3 &

It may be started before the text is there. It waits for the files that TEXT/SHA256SUMS lists,
prepares them (without the one of --valid), and starts to train. From the first updates it learns
their speed, and starts again with as many updates as fit. Then it converts the best model to its
storage, writes the model folder in pieces, because not every way home takes large files, and
measures what is stored, as long as there is time: its perplexity, and each `--then NAME COMMAND`, a
command of elmore in which {model} is the model, all at the same time.

    OUT/log.txt     what was done when: each command, and how much time was left
    OUT/train.txt   what the training printed
    OUT/model       the model
    OUT/pieces      model.tar.gz.000, model.tar.gz.001 ... and SHA256SUMS
    OUT/measured    NAME.json, what the command printed, and NAME.txt, its messages
    OUT/done        written last; its text says how it ended

    cat model.tar.gz.* | tar xz                           # at home

SECONDS is the end in seconds since 1970 (`date +%s`). A training that does not end in time is
killed, and its best model so far is converted; `train.evaluate_every` must be set, so that there is
one. What the script has started ends with it, even when it is killed. OUT must be a folder that
nothing else empties.

    python benchmarks/train_in_time.py --watch 570 OUT    # how it stands, and whether it still runs

waits until the pieces are there or everything has ended, but at most 570 seconds, and exits with 1
at once if the script is not running or has failed.
"""

import argparse
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

from elmore_command import elmore_command

from elmore import lock
from elmore.errors import DataError

POLL = 0.2  # seconds
PROVISIONAL = 100_000  # updates of the run that is measured: it is ended long before
MARGIN = 1.01  # an update may take so much longer later than where it was measured


class Job(NamedTuple):
    """What is trained on what, and until when."""

    recipe: str
    text: Path
    out: Path
    valid: Path
    settings: list[str]
    until: float
    device: str
    vocabulary: Path | None
    init: str | None
    then: list[tuple[str, str]]

    @property
    def shards(self) -> Path:
        """The prepared text."""
        return self.out / "shards"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.out / "run"

    @property
    def trial(self) -> Path:
        """The folder of the run that is measured."""
        return self.out / "trial"

    @property
    def model(self) -> Path:
        """The stored model."""
        return self.out / "model"

    def seconds_left(self) -> float:
        """Return how long the machine is still there."""
        return self.until - time.time()

    def log(self, text: str) -> None:
        """Add a line to the log."""
        with (self.out / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')}, {self.seconds_left():.0f} s left: {text}\n")


def main() -> None:
    if "--watch" in sys.argv:
        parser = argparse.ArgumentParser(
            description="Wait for the pieces or the end, and print how it stands."
        )
        parser.add_argument("--watch", type=float, metavar="SECONDS", help="wait no longer")
        parser.add_argument("out", type=Path)
        args = parser.parse_args()
        raise SystemExit(watch(args.out, args.watch))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("text", type=Path, help="folder with text files and their SHA256SUMS")
    parser.add_argument("out", type=Path)
    parser.add_argument("--until", type=float, required=True, help="seconds since 1970")
    parser.add_argument("--valid", type=Path, required=True, help="text to evaluate on")
    parser.add_argument("--vocabulary", type=Path)
    parser.add_argument("--init", help="a model to start from")
    parser.add_argument("--storage", default="int8", help="as for elmore convert")
    parser.add_argument("--set", nargs="+", action="extend", default=[], help="section.key=value")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--updates", type=int, default=160, help="updates, to learn their speed")
    parser.add_argument("--evaluation", type=float, default=8, help="seconds that each takes")
    parser.add_argument("--reserve", type=float, default=60, help="seconds after the training")
    parser.add_argument("--then", nargs=2, action="append", default=[], help="NAME COMMAND")
    parser.add_argument("--piece", type=int, default=15 * 2**20, help="bytes")
    args = parser.parse_args()
    used = ["perplexity", *(name for name, _ in args.then)]
    if len(set(used)) < len(used) or any("/" in name for name in used):
        parser.error(f"--then: names of files are expected, each once, found {', '.join(used)}")
    for name, command in args.then:
        try:
            shlex.split(command)
        except ValueError as error:
            parser.error(f"--then {name}: {error}: {command}")
    names = {name: getattr(args, name) for name in Job._fields if name != "settings"}
    job = Job(**names, settings=args.set)
    with lock.acquire(job.out / "lock"):
        if job.run.exists():
            parser.error(f"{job.run}: the run of an earlier start; remove it, or name another OUT")
        end = work(job, args)
    if end.startswith("stopped"):
        raise SystemExit(end)


def work(job: Job, args: argparse.Namespace) -> str:
    """Do everything, and return how it ended, which `done` says then."""
    (job.out / "done").unlink(missing_ok=True)
    try:
        files = wait_for_text(job)
        prepare(job, files)
        early = train(job, measured=args.updates, evaluation=args.evaluation, reserve=args.reserve)
        store(job, args.storage, args.piece)
        problems = [early, *measure(job)] if early else measure(job)
        end = ", but ".join(["all is there", "; ".join(problems)] if problems else ["all is there"])
    except Exception as error:  # whoever waits for OUT/done must hear of it
        end = f"stopped: {type(error).__name__}: {error}"
    job.log(end)
    (job.out / "done").write_text(f"{end}\n", encoding="utf-8")
    return end


def wait_for_text(job: Job) -> list[Path]:
    """Wait until the files that SHA256SUMS lists are complete; return those to train on."""
    sums, complete = job.text / "SHA256SUMS", set()
    while True:
        wanted = read_sums(sums)
        for path in wanted.keys() - complete:
            if path.is_file() and sha256(path) == wanted[path]:
                complete.add(path)
        if wanted and len(complete) == len(wanted):
            job.log(f"{len(complete)} text files are there")
            return [path for path in wanted if path.resolve() != job.valid.resolve()]
        if job.seconds_left() < 0:
            raise TimeoutError(
                f"{len(complete)} of {len(wanted)} files in {sums} arrived; copy the others"
            )
        time.sleep(POLL)


def read_sums(path: Path) -> dict[Path, str]:
    """Return the digests of the files that a list of sha256sum has in whole lines."""
    sums = {}
    for line in path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []:
        digest, _, name = line.partition(" ")
        if line.endswith("\n"):  # else the rest is still being copied
            sums[path.parent / name.strip().removeprefix("*")] = digest
    return sums


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare(job: Job, files: list[Path]) -> None:
    """Prepare the text, unless that is done."""
    if (job.shards / "index.json").exists():
        return
    vocabulary = [f"--vocabulary={job.vocabulary}"] if job.vocabulary else []
    texts = [*map(str, files), f"--valid={job.valid}"]
    run(job, ["prepare", *texts, *vocabulary, f"--out={job.shards}"])


def train(job: Job, *, measured: int, evaluation: float, reserve: float) -> str:
    """Train for some updates to learn their speed, then anew for as many as fit.

    A run cannot be made shorter, and one that is made longer had another learning rate before.

    Returns why the training ended early, or nothing.
    """
    shutil.rmtree(job.trial, ignore_errors=True)  # its metrics would be read as those of this start
    launched = time.time()
    training = start(job, training_command(job, PROVISIONAL, job.trial))
    try:
        first, first_time = wait_for_update(job, measured // 3, training)  # the ones before compile
        last, last_time = wait_for_update(job, measured, training)
    finally:
        training.kill()
        training.wait()
    if last == first:
        raise ValueError(f"{last} updates are logged at once; set train.log_every lower")
    per_update = MARGIN * (last_time - first_time) / (last - first)
    starting = max(0.0, first_time - launched - first * per_update)
    recipe = json.loads((job.trial / "recipe.json").read_text("utf-8"))
    every = recipe["train"]["evaluate_every"]
    if not every:
        raise ValueError("train.evaluate_every is 0, once an epoch; set a number of updates")
    seconds = job.seconds_left() - reserve - starting
    steps = count_updates(seconds, per_update, evaluation, every)
    job.log(f"an update takes {per_update:.4f} s, starting {starting:.0f} s: {steps} updates fit")
    if steps < measured:
        raise TimeoutError(f"only {steps} updates fit, fewer than were measured; lend it longer")
    shutil.rmtree(job.trial)
    training = start(job, training_command(job, steps, job.run))
    while training.poll() is None and job.seconds_left() > reserve / 2:
        time.sleep(POLL)
    early = ""
    if training.poll() is None:
        early = "the training did not end in time"
        training.kill()
    elif training.poll():
        early = f"the training ended with exit {training.returncode}"
    training.wait()
    if early:
        job.log(f"{early}; its best model so far is used")
    if early and not (job.run / "best").exists():
        raise RuntimeError(f"{early}, before a model was evaluated; see {job.out}/train.txt")
    return early


def count_updates(seconds: float, per_update: float, evaluation: float, every: int) -> int:
    """Return how many updates fit into the time, evaluated at the end and every so many."""
    return max(0, int((seconds - evaluation) / (per_update + evaluation / every)))


def training_command(job: Job, steps: int, run: Path) -> list[str]:
    """Return the command of a training with so many updates, and its run folder."""
    settings = [f"--set={each}" for each in [*job.settings, f"train.steps={steps}"]]
    init = [f"--init={job.init}"] if job.init else []
    where = [f"--out={run}", f"--device={job.device}"]
    return ["pretrain", job.recipe, str(job.shards), *where, *init, *settings]


def wait_for_update(job: Job, update: int, training: subprocess.Popen) -> tuple[int, float]:
    """Wait until the trial logs an update; return the number of the last one, and when that was."""
    path = job.trial / "metrics.jsonl"
    while training.poll() is None:
        if job.seconds_left() < 0:
            raise TimeoutError(f"update {update} was not reached; see {job.out}/train.txt")
        if path.exists():
            when, lines = path.stat().st_mtime, path.read_text("utf-8").splitlines()
            steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
            if steps and steps[-1] >= update:
                return steps[-1], when
        time.sleep(POLL)
    raise RuntimeError(
        f"the training ended with exit {training.returncode}; see {job.out}/train.txt"
    )


def start(job: Job, words: list[str]) -> subprocess.Popen:
    """Start an `elmore` command that prints to train.txt."""
    job.log(f"elmore {' '.join(words)}")
    with (job.out / "train.txt").open("ab") as out:
        return subprocess.Popen(elmore_command(words), stdout=out, stderr=out)


def run(job: Job, words: list[str]) -> str:
    """Run an `elmore` command, and return what it prints."""
    job.log(f"elmore {' '.join(words)}")
    done = subprocess.run(elmore_command(words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout


def store(job: Job, storage: str, piece: int) -> None:
    """Convert the best model to its storage, and split it."""
    run(job, ["convert", str(job.run), str(job.model), f"--storage={storage}"])
    num_pieces = split_folder(job.model, job.out / "pieces", piece)
    job.log(f"{num_pieces} pieces are there")


def measure(job: Job) -> list[str]:
    """Measure what is stored in every way that was asked for; return what went wrong."""
    folder, device = job.out / "measured", f"--device={job.device}"
    folder.mkdir(exist_ok=True)
    evaluate = ["evaluate", str(job.model), str(job.shards), device, "--json"]
    commands = {"perplexity": evaluate}
    for name, command in job.then:
        words = shlex.split(command)
        commands[name] = [word.replace("{model}", str(job.model)) for word in words]
    running, problems = {}, []
    for name, words in commands.items():
        job.log(f"elmore {' '.join(words)}")
        result, messages = folder / f"{name}.json", folder / f"{name}.txt"
        with result.open("wb") as out, messages.open("wb") as err:
            running[name] = subprocess.Popen(elmore_command(words), stdout=out, stderr=err)
    while running and job.seconds_left() > 0:
        for name in [name for name, process in running.items() if process.poll() is not None]:
            status = running.pop(name).returncode
            job.log(f"{name} ended with exit {status}")
            problems += [f"{name} ended with exit {status}"] if status else []
        time.sleep(POLL)
    for name, process in running.items():
        process.kill()
        process.wait()
        problems.append(f"{name} did not end in time")
    return problems


def watch(out: Path, seconds: float) -> int:
    """Wait for the pieces, or if they are there for the end, and print how it stands.

    Returns the exit status: 1 if the script has failed or is not running.
    """
    end, pieces, done = time.time() + seconds, out / "pieces" / "SHA256SUMS", out / "done"
    awaited = done if pieces.exists() else pieces
    while time.time() < end and is_running(out) and not awaited.exists():
        time.sleep(POLL)
    for name in ("log.txt", "train.txt"):
        if (out / name).exists():
            printed = (out / name).read_text("utf-8", "replace")  # a letter may be half written
            print(*printed.splitlines()[-3:], sep="\n")
    if done.exists():
        return int(done.read_text("utf-8").startswith("stopped"))
    if is_running(out):
        return 0
    print(f"{out}: no script is running; it was killed, or something emptied this folder")
    return 1


def is_running(out: Path) -> bool:
    """Return whether the script that writes to a folder is running: then it holds a lock there."""
    path = out / "lock"
    if not path.exists():
        return False
    try:
        with lock.acquire(path):
            return False
    except DataError:
        return True


def split_folder(folder: Path, pieces: Path, size: int) -> int:
    """Write a folder as the pieces of an archive, and their digests; return their number."""
    pieces.mkdir(exist_ok=True)
    archive = pieces / f"{folder.name}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=6) as file:
        file.add(folder, folder.name)
    sums = []
    with archive.open("rb") as file:
        while piece := file.read(size):
            path = pieces / f"{archive.name}.{len(sums):03}"
            path.write_bytes(piece)
            sums.append(f"{sha256(path)}  {path.name}\n")
    archive.unlink()
    (pieces / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return len(sums)


if __name__ == "__main__":
    main()
