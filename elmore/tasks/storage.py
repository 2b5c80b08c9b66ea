"""A trained solver as a folder: config.json, model.safetensors and a card.

What it was trained with but did not train (word vectors of a file, a frozen biLM) is named there
and known by its sha256; it is not copied.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import elmore
from elmore import atomic, config
from elmore.errors import ConfigError, WeightsError
from elmore.tasks import solver as solvers
from elmore.tasks import sources, task
from elmore.tasks.solver import Solver
from elmore.tasks.sources import Sources, Specification
from elmore.weights.bundle import check_weights

FORMAT = 1
FILES = frozenset({"config.json", "model.safetensors", "README.md"})


@dataclass(frozen=True, kw_only=True)
class SolverConfig:
    """config.json."""

    format: int
    task: str
    recipe: dict
    labels: tuple[str, ...]
    words: tuple[str, ...] | None = None
    embedder: Specification
    sha256: dict
    """Of what the embedder names."""
    scores: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


def save(solver: Solver, destination: Path) -> None:
    """Write a solver, complete or not at all, in place of an earlier one."""
    settings = SolverConfig(
        format=FORMAT,
        task=solver.task.name,
        recipe=config.as_dict(solver.config),
        labels=tuple(solver.labels),
        words=None if solver.words is None else tuple(solver.words),
        embedder=solver.sources.specification,
        sha256=solver.sources.digests,
        scores=solver.scores,
        versions={"elmore": elmore.__version__, "torch": torch.__version__},
    )
    tensors = {name: tensor.cpu() for name, tensor in solvers.trained_tensors(solver).items()}
    with atomic.folder(destination, replaces=FILES, is_ours=_is_ours) as folder:
        text = json.dumps(config.as_dict(settings), indent=2, ensure_ascii=False)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8", errors="replace")
        try:
            save_file(tensors, folder / "model.safetensors")
        except SafetensorError as error:  # a full disk comes as this, not as an OSError
            raise WeightsError(f"{destination}: could not be written ({error})") from error
        (folder / "README.md").write_text(_card(settings), encoding="utf-8", errors="replace")


def _is_ours(folder: Path) -> bool:
    return config.says_format(folder / "config.json")


def load(place: Path, *, device: str = "auto", ready: Sources | None = None) -> Solver:
    """Open a solver: its folder, or the run it is the best of.

    `ready` is an embedder that is open already; it is used if it is the one.
    """
    folder = place / "best" if (place / "best" / "config.json").is_file() else place
    path = folder / "config.json"
    settings = _settings(path, place)
    kind = task.find(settings.task)
    recipe = config.build(kind.config_class, settings.recipe, f"{path}: recipe")
    if ready and (ready.specification, ready.digests) == (settings.embedder, settings.sha256):
        opened = ready
    else:
        opened = sources.reopened(settings.embedder, settings.sha256, path, device=device)
    words = None if settings.words is None else list(settings.words)
    try:
        solver = solvers.build(kind(recipe), recipe, list(settings.labels), words, opened)
    except ValueError as error:  # of labels that are none of this task's
        raise ConfigError(f"{path}: {error}") from error
    solver.scores = settings.scores
    _load_weights(solver, folder / "model.safetensors")
    return solver


def runs_within(place: Path) -> list[str]:
    """Name the trained runs of a folder that holds several, by seed or by fraction and seed."""
    kinds = ("seed-*", "fraction-*", "fraction-*/seed-*")
    found = [path for kind in kinds for path in place.glob(f"{kind}/best/config.json")]
    names = [path.parent.parent.relative_to(place).as_posix() for path in found]
    numbers = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")
    return sorted(names, key=lambda name: ([float(n) for n in numbers.findall(name)], name))


def _settings(path: Path, place: Path) -> SolverConfig:
    several = [] if path.is_file() else runs_within(place)
    if several:
        raise ConfigError(
            f"{place}: {len(several)} trained runs lie there; name one, as {place / several[0]}"
        )
    if not path.is_file():
        raise ConfigError(f"{place}: no trained task there; name a folder that `task train` wrote")
    data = config.read_json(path)
    if "task" not in data:
        raise ConfigError(f"{path}: not of a trained task, but of a language model or another")
    config.check_format(data, FORMAT, str(path), family=ConfigError)
    return config.build(SolverConfig, data, str(path))


def _load_weights(solver: Solver, path: Path) -> None:
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file ({error})") from error
    expected = solver.learner.state_dict()
    odd = sorted(set(expected) ^ set(found))
    if odd:
        raise WeightsError(f"{path}: {odd[0]} is in one of file and config.json, not in both")
    for name, tensor in found.items():
        check_weights(tensor, f"{path}: {name}")
        if tensor.shape != expected[name].shape:
            raise WeightsError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, config.json asks for "
                f"{tuple(expected[name].shape)}; are they of the same run?"
            )
    solver.learner.load_state_dict(found)
    solver.learner.eval()


def _card(settings: SolverConfig) -> str:
    scores = "".join(f"| {name} | {value:.2f} |\n" for name, value in settings.scores.items())
    return f"""# A model for {settings.task}

Trained with elmore {elmore.__version__}; embedder `{settings.embedder}`.

| on held-out examples | |
|---|---|
{scores}
Labels: {", ".join(settings.labels)}.

```
elmore task predict RUN "A sentence to try."
```
"""
