"""Write a small file of each format, as this version writes it: `python -m tests.formats.make`.

What is there already is left alone, for it was written by an earlier version, and must be read for
ever. When a format gets a new number, raise it in `FORMATS`, run this, and commit the new folder
beside the old ones.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from elmore.corpus import shards
from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import job, layer_cache, writers
from elmore.embed.jobs import journal as embed_journal
from elmore.lm.pretrain import pretrain
from elmore.model import softmax as softmaxes
from elmore.model.config import SoftmaxConfig
from elmore.probe.neighbors import storage
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.tasks import checkpoint, registry, sweep
from elmore.tasks.train import train as train_task
from elmore.train import runs
from elmore.weights import folder, folder_config, forward_state, pretrained, warm
from elmore.weights import pooling as weights_pooling
from elmore.weights import whitening as weights_whitening
from tests.support import toy_corpus, toy_suite, toy_tasks, toy_whitening
from tests.support.cli_runner import run_elmore

HERE = Path(__file__).parent

FORMATS = {
    "corpus": shards.FORMAT,
    "model": folder_config.FORMAT,
    "run": runs.FORMAT,
    "task": checkpoint.FORMAT,
    "summary": sweep.FORMAT,
    "embeddings": writers.FORMAT,
    "journal": embed_journal.FORMAT,
    "pooling": weights_pooling.FORMAT,
    "whitening": weights_whitening.FORMAT,
    "layers": layer_cache.FORMAT,
    "state": forward_state.FORMAT,
    "uses": storage.FORMAT,
    "recipe": 2,  # these four have no number: their keys tell
    "printed": 3,  # 3 added wsd
    "distilled": 1,
    "initialized": 1,
    "onnx": 1,  # those of integrations, which cannot be imported without their framework
    "spacy": 1,
    "huggingface": 1,
}
"""The newest number of each."""

TEXTS = ("the old bridge lies near the lake .", "a grey cat waits in Zürich !", "", "two ships")
TOKENS = tuple(tuple(text.split()) for text in TEXTS)
SMALL = ("model.lstm.cell_dim=8", "model.lstm.output_dim=4", "train.steps=8", "train.save_every=4")
RECIPE = (
    *(*SMALL, "train.evaluate_every=4", "train.log_every=1", "train.keep_checkpoints=2"),
    "train.warmup_fraction=none",  # as the first runs had none
)
TAUGHT = (*RECIPE, "distillation.teacher=model-1")  # in the folder of these files
NER = [*toy_tasks.small("ner"), "train.epochs=4"]


def corpus(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as aside:
        train, valid = toy_corpus.sentences(40), toy_corpus.sentences(6, seed=1)
        toy_corpus.prepare_corpus(Path(aside), "corpus", train, valid, min_count=2)
        shutil.copytree(Path(aside) / "corpus", directory)


def model(directory: Path) -> None:
    """A model of the run, with a warm state and another softmax, in the smallest storage."""
    bundle = pretrained.load(HERE / f"run-{runs.FORMAT}")
    packed = SoftmaxConfig(kind="adaptive", cutoffs=(9, 20), tail_widths=(4, 4), tail_bits=2)
    torch.manual_seed(0)
    bundle = replace(bundle, softmax=softmaxes.build(packed, len(bundle.vocabulary or ()), 4))
    folder.save(warm.add_warm_state(bundle), directory, storage="int8")
    write_vectors(Embedder(pretrained.load(directory)), directory)


def write_vectors(elmo: Embedder, directory: Path) -> None:
    """Keep what a model said when it was written."""
    result = {
        state: [one.vectors.tolist() for one in made.embed(TOKENS, layers="all")]
        for state, made in (("zero", elmo), ("warm", Embedder(elmo.bundle, initial_state="warm")))
    }
    (directory / "vectors.json").write_text(json.dumps(result))


def run(directory: Path, settings: Sequence[str] = RECIPE, init: Sequence[str | Path] = ()) -> None:
    """A training that was stopped at its last but one checkpoint."""
    text = HERE / f"corpus-{shards.FORMAT}"
    list(pretrain(toy_corpus.recipe(*settings), text, directory, init=init, device="cpu"))
    shutil.rmtree(runs.Run(directory).checkpoints / "step-00000008")
    _without_events(directory)


def distilled(directory: Path) -> None:
    """Such a training with a teacher."""
    with contextlib.chdir(HERE):
        run(directory, TAUGHT)


def initialized(directory: Path) -> None:
    """Such a training from the weights of a model that is gone since."""
    with tempfile.TemporaryDirectory() as aside, contextlib.chdir(aside):
        shutil.copytree(HERE / "run-1" / "best", "parent")
        run(directory, RECIPE, ["parent"])


def recipe(directory: Path) -> None:
    directory.mkdir()
    (directory / "recipe.toml").write_text(toy_corpus.RECIPE)


def _without_events(directory: Path) -> None:
    for path in directory.rglob("events.out.*"):
        path.unlink()


def of_task(directory: Path) -> None:
    """A task that was moved: word vectors lie in it, a biLM as far from it as it did."""
    with tempfile.TemporaryDirectory() as aside:
        made, ner = Path(aside) / "made", registry.find_task("ner")
        made.mkdir()
        data = toy_tasks.write("ner", made / "data.txt")
        vectors, bilm = toy_tasks.vectors(Path(aside) / "x.txt"), toy_tasks.bilm(made / "bilm")
        recipe, embedder = registry.load_recipe(ner, None, NER), f"glove:{vectors}+elmo:{bilm}"
        options = {"embedder": embedder, "device": "cpu"}
        trained = train_task(ner, recipe, data, data, made / "run", **options)
        shutil.rmtree(made / "run" / "checkpoints")
        _without_events(made)
        scores = trained.evaluate(data)
        (made / "scores.json").write_text(json.dumps(scores))
        shutil.copytree(made, directory)


def summary(directory: Path) -> None:
    directory.mkdir()
    scores = [{"dev": {"f1": 80.0 + seed}} for seed in range(2)]
    scored = [
        sweep.RunScores(f"seed-{n}", "f1", None, None, n, one) for n, one in enumerate(scores)
    ]
    (directory / "summary.json").write_text(json.dumps(sweep.summarize(scored)))


def embedder() -> Embedder:
    """The model that others of these files are of: the first, which stays."""
    return Embedder(pretrained.load(HERE / "model-1"))


def described(elmo: Embedder) -> embed_journal.EmbedJob:
    """The job of the journal and of the files of vectors."""
    return job.describe_job(
        elmo,
        layers="top",
        pool=None,
        dtype="float32",
        tokenized=True,
        split=False,
        initial_state="zero",
        errors="strict",
        column="text",
    )


def embeddings(directory: Path) -> None:
    directory.mkdir()
    elmo = embedder()
    for ending in ("hdf5", "npz", "parquet", "jsonl"):
        job.run_job(elmo, TEXTS, directory / f"vectors.{ending}", described(elmo))


def journal(directory: Path) -> None:
    """A job that was killed after two of the four lines."""
    directory.mkdir()

    def killed() -> Iterator[str]:
        yield from TEXTS[:2]

    elmo = embedder()
    half = embed_journal.EmbedJournal(directory / "vectors.jsonl.parts", described(elmo))
    part = half.begin(0, 0)
    for text, tokens, vectors in job.embed_lines(elmo, killed(), half.job):
        part.add(text, tokens, vectors)
    part.close()
    half.close()


def learned_pooling(directory: Path) -> None:
    directory.mkdir()
    elmo = embedder()
    sample = [(one.tokens, one.vectors) for one in elmo.embed(TOKENS)]
    width = elmo.width
    learned = replace(
        pooling.learn(sample, remove=1),
        attention=np.linspace(-1, 1, width, dtype=np.float32),
        projection=np.arange(3 * width, dtype=np.int8).reshape(3, width),
        scales=np.array([0.5, 0.25, 1], np.float16),
        truncatable=True,
        origin={"learned from": "four sentences"},
    )
    learned.save(directory / "pooling.npz")
    pooled = [pooling.pool(tokens, vectors, learned).tolist() for tokens, vectors in sample]
    (directory / "vectors.json").write_text(json.dumps(pooled))


def state(directory: Path) -> None:
    """The state after the first words of a text, and the vectors of the others."""
    directory.mkdir()
    elmo = embedder()
    _, reached = elmo.step(TOKENS[0][:3])
    reached.save(directory / "state.npz")
    rest, _ = elmo.step(TOKENS[0][3:], reached)
    (directory / "vectors.json").write_text(json.dumps(rest.vectors.tolist()))


def whitening(directory: Path) -> None:
    directory.mkdir()
    elmo = embedder()
    made = toy_whitening.make_whitening(elmo)
    made.save(directory / "whitening.npz")
    vectors = [one.vectors.tolist() for one in elmo.embed(TOKENS, layers=made)]
    (directory / "vectors.json").write_text(json.dumps(vectors))


def layers(directory: Path) -> None:
    layer_cache.load_or_compute(embedder(), TOKENS, directory)


def uses(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as aside:
        text = Path(aside) / "text.txt"
        text.write_text("\n".join(TEXTS), encoding="utf-8")
        OccurrenceIndex.build(directory, embedder(), [text], tokenized=True)


def printed(directory: Path) -> None:
    """What commands say with --json, those that are quick on a small model."""
    directory.mkdir()
    text = directory / "text.txt"
    text.write_text("\n".join(toy_corpus.sentences(30)), encoding="utf-8")
    model, source = str(HERE / "run-1"), str(text)
    commands: dict[str, Sequence[str]] = {
        "evaluate": ("evaluate", model, str(HERE / "corpus-1")),
        "score": ("score", model, source, "--tokenized", "--substitutes", "2"),
        "context": ("probe", "context", source, "--model", model),
        "neighbors": ("neighbors", model, source, "the [bank] opens ."),
    }
    with tempfile.TemporaryDirectory() as aside:
        toy_suite.write_senses(Path(aside))
        train = Path(aside) / "Training_Corpora" / "SemCor" / "semcor.data.xml"
        test = Path(aside) / "Evaluation_Datasets" / "ALL" / "ALL.data.xml"
        commands["wsd"] = (
            *("probe", "wsd", "--model", model, "--wordnet", str(Path(aside) / "wordnet-3.0")),
            *("--train", str(train), "--test", str(test)),
        )
        for name, command in commands.items():
            done = run_elmore(*command, "--device", "cpu", "--json")
            assert done.code == 0, done.err
            (directory / f"{name}.json").write_text(done.out, encoding="utf-8")


def onnx(directory: Path) -> None:
    from elmore.integrations.onnx import export

    export(embedder().bundle, directory / "model.onnx")


def spacy(directory: Path) -> None:
    from elmore.integrations.spacy_embedder import DocEmbedder

    DocEmbedder(str(HERE / "model-1")).to_disk(directory)


def huggingface(directory: Path) -> None:
    from elmore.integrations.huggingface import ElmoModel, ElmoTokenizer

    ElmoModel.from_elmore(HERE / "model-1").save_pretrained(directory)
    ElmoTokenizer.from_elmore(HERE / "model-1").save_pretrained(directory)


MAKERS: dict[str, Callable[[Path], None]] = {
    "corpus": corpus,
    "recipe": recipe,
    "run": run,
    "distilled": distilled,
    "initialized": initialized,
    "model": model,
    "task": of_task,
    "summary": summary,
    "embeddings": embeddings,
    "journal": journal,
    "pooling": learned_pooling,
    "whitening": whitening,
    "layers": layers,
    "state": state,
    "uses": uses,
    "printed": printed,
    "onnx": onnx,
    "spacy": spacy,
    "huggingface": huggingface,
}


def main() -> None:
    """Write what is missing."""
    for kind, make in MAKERS.items():
        path = HERE / f"{kind}-{FORMATS[kind]}"
        if not path.exists():
            make(path)


if __name__ == "__main__":
    main()
