"""Start the models that a benchmark compares, and let them take turns.

Each model is a process of its own. It loads its weights, embeds the text once to warm up, and then
waits. In every round each process is asked in turn for the seconds of some runs, so other load on
the machine affects all of them alike. Packages of others are installed into their own environment,
with the same torch.
"""

import json
import lzma
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from data_folder import data_path

from elmore.text import sentences
from elmore.text.tokenizers import penn
from elmore.weights.bundle import Bundle
from elmore.weights.convert import bilm_tf

TURNS = """
import json, sys, time
texts, *arguments = json.load(open(sys.argv[1])), *sys.argv[2:]
clock = time.perf_counter
{code}
run(texts)
print("ready", flush=True)
for line in sys.stdin:
    seconds = []
    for _ in range(int(line)):
        start = clock()
        run(texts)
        seconds.append(clock() - start)
    print(json.dumps(seconds), flush=True)
"""

ELMORE = """
import elmore
precision, *sources = arguments
elmo = elmore.load(*sources, device="cpu", precision=precision)
run = elmo.embed
"""

SIMPLE_ELMO = """
from simple_elmo_pytorch import Elmo, ElmoVectorizer
peer = ElmoVectorizer(Elmo(*arguments, 1))
run = lambda texts: peer.get_elmo_vectors(texts, warmup=False)
"""

# One piece for each word, and no tokenizer to wait for: as good as it can get for an encoder.
ENCODER = """
import torch, transformers
dtype = getattr(torch, arguments.pop())
layers, width, heads = map(int, arguments)
sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
config = transformers.BertConfig(**sizes, intermediate_size=4 * width)
encoder = transformers.BertModel(config).eval().to(dtype)

@torch.inference_mode()
def run(texts):
    lengths = sorted(len(text) + 2 for text in texts)
    for first in range(0, len(lengths), 32):
        batch = torch.tensor(lengths[first : first + 32])[:, None]
        mask = (torch.arange(int(batch.max())) < batch).long()
        encoder(input_ids=mask * 1000, attention_mask=mask).last_hidden_state.float().numpy()
"""

SIMPLE_ELMO_PACKAGES = ["h5py", "simple-elmo-pytorch==0.2"]  # it names no requirements
ENCODER_PACKAGES = ["transformers==5.22.2"]
BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # of x86, and the last of Arm
ENCODERS = {"MiniLM-sized encoder": (6, 384, 12), "BERT-base-sized encoder": (12, 768, 12)}


class Contestant(NamedTuple):
    """What runs where, and what it is told."""

    code: str
    python: Path
    arguments: Sequence[object]


def ours(*sources: object, precision: str = "exact") -> Contestant:
    return Contestant(ELMORE, Path(sys.executable), (precision, *sources))


def simple_elmo(python: Path, bundle: Bundle, folder: Path) -> Contestant:
    """Return simple-elmo-pytorch at its defaults with the weights of an elmore model."""
    bilm_tf.write_bilm_tf(bundle, folder)
    return Contestant(SIMPLE_ELMO, python, (folder / "options.json", folder / "weights.hdf5"))


def encoders(python: Path) -> dict[str, Contestant]:
    """Return transformer encoders of common sizes with random weights, in each fast type."""
    return {
        f"{name}, {dtype}": Contestant(ENCODER, python, (*sizes, dtype))
        for name, sizes in ENCODERS.items()
        for dtype in encoder_types()
    }


def encoder_types() -> list[str]:
    """Return float32, and bfloat16 where the CPU has matrix or dot-product units for it."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    return ["float32", *(["bfloat16"] if flags & BF16_FLAGS else [])]


def fastest(name: str, values: Mapping[str, float], choose: Callable[..., float]) -> float:
    """Return the best value of an encoder among its types."""
    return choose(value for key, value in values.items() if key.startswith(f"{name},"))


def install(place: Path, packages: Sequence[str]) -> Path:
    """Make an environment for packages and the same torch; give its Python."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    constraints = Path(__file__).parent.parent / "constraints.txt"
    command = [python, "-m", "pip", "install", "-q", "-c", constraints, "torch", "numpy", *packages]
    subprocess.run(list(map(str, command)), check=True, stderr=subprocess.DEVNULL)
    return python


def real_sentences(name: str = "corpus/valid.txt.xz") -> Iterator[list[str]]:
    """Return tokenised sentences of a text in $ELMORE_DATA."""
    with lzma.open(data_path(name), "rt", encoding="utf-8") as file:
        for line in file:
            spans = sentences.split_sentences(line)
            yield from (penn(line[start:end]).words for start, end in spans)


def take_turns(
    contestants: dict[str, Contestant], texts: Path, *, rounds: int, runs: int
) -> dict[str, list[float]]:
    """Return the seconds of each run of each contestant over all texts."""
    result: dict[str, list[float]] = {name: [] for name in contestants}
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(_started(each, texts)) for name, each in contestants.items()
        }
        for _ in range(rounds):
            for name, process in waiting.items():
                result[name] += json.loads(_ask(process, f"{runs}\n"))
    return result


@contextmanager
def _started(contestant: Contestant, texts: Path) -> Iterator[subprocess.Popen]:
    code = TURNS.format(code=contestant.code)
    command = list(map(str, [contestant.python, "-c", code, texts, *contestant.arguments]))
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet
    ) as process:
        try:
            assert _ask(process) == "ready\n"
            yield process
        finally:
            process.kill()


def _ask(process: subprocess.Popen, question: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    process.stdin.flush()
    return process.stdout.readline()
