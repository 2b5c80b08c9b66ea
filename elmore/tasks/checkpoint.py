"""A trained solver as a folder: config.json, model.safetensors and a card.

Word vectors of a file are copied to vectors.safetensors, so that the folder can be moved. A frozen
biLM is not copied but identified by its sha256: it is found by its name in `elmore models`, at its
recorded path, at its recorded path relative to the folder, or where the user says.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import elmore
from elmore import atomic, config
from elmore.errors import ConfigError, WeightsError
from elmore.tasks import registry
from elmore.tasks import trained_task as solvers
from elmore.tasks.embedding import spec, stored_vectors
from elmore.tasks.embedding.spec import Sources, Specification
from elmore.tasks.trained_task import Solver
from elmore.weights.bundle import check_weights

FORMAT = 3  # 1: word vectors were left where they were; 2: keys of the recipe had other names
FILES = frozenset({"config.json", "model.safetensors", "README.md", stored_vectors.NAME})


@dataclass(frozen=True, kw_only=True)
class SolverConfig:
    """config.json."""

    format: int
    task: str
    recipe: dict
    labels: tuple[str, ...]
    words: tuple[str, ...] | None = None
    embedder: Specification
    """As it was named: word vectors by the name of their file, a biLM by its name or path."""
    elmo_relative: str | None = None
    """The path of the biLM relative to this folder."""
    sha256: dict[str, str]
    """Of what the embedder names."""
    scores: dict[str, float] = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


def save(solver: Solver, destination: Path) -> None:
    """Write a solver, complete or not at all, in place of an earlier one."""
    settings = SolverConfig(
        format=FORMAT,
        task=solver.task.name,
        recipe=config.as_dict(solver.config),
        labels=tuple(solver.labels),
        words=None if solver.words is None else tuple(solver.words),
        **_embedder_fields(solver.sources.specification, destination),
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
            if solver.sources.vectors is not None:
                _store_vectors(solver.sources, destination, folder / stored_vectors.NAME)
        except SafetensorError as error:  # a full disk comes as this, not as an OSError
            raise WeightsError(f"{destination}: could not be written ({error})") from error
        (folder / "README.md").write_text(_card(settings), encoding="utf-8", errors="replace")
    if destination not in solver.sources.copies:
        solver.sources.copies.append(destination)


def _is_ours(folder: Path) -> bool:
    return config.says_format(folder / "config.json")


def _embedder_fields(named: Specification, folder: Path) -> dict[str, Any]:
    glove = None if named.glove is None else Path(named.glove).name
    relative = None
    if named.elmo and Path(named.elmo).exists():
        with contextlib.suppress(ValueError):  # on another drive
            relative = Path(os.path.relpath(named.elmo, folder)).as_posix()
    return {"embedder": replace(named, glove=glove), "elmo_relative": relative}


def _store_vectors(sources: Sources, destination: Path, path: Path) -> None:
    """Link to the file of an earlier save or of another run, if there is one: it may be large."""
    assert sources.vectors is not None
    for folder in (destination, *sources.copies):
        if _sha256(folder / "config.json").get("glove") == sources.digests["glove"]:
            with contextlib.suppress(OSError):
                path.hardlink_to(folder / stored_vectors.NAME)
                return
    stored_vectors.save(sources.vectors, path)


def _sha256(path: Path) -> dict[str, str]:
    try:
        return config.build(SolverConfig, config.read_json(path), str(path)).sha256
    except ConfigError:
        return {}


def load(
    place: Path,
    *,
    device: str = "auto",
    embedder: str | None = None,
    ready: Sources | None = None,
) -> Solver:
    """Open a solver: its folder, or the run it is the best of.

    `embedder` is the path of the word vectors or biLM used in training, if moved. `ready` is open
    already, and used if it is the same.
    """
    folder = place / "best" if (place / "best" / "config.json").is_file() else place
    path = folder / "config.json"
    settings = _settings(path, place)
    kind = registry.find_task(settings.task)
    found = config.rename_old_keys(settings.recipe, f"{path}: recipe")
    recipe = config.build(kind.config_class, found, f"{path}: recipe")
    if ready and ready.digests == settings.sha256:
        opened = ready
    else:
        named, copies = _resolve_embedder(settings, folder, embedder)
        opened = spec.reopened(named, settings.sha256, path, elmo_copies=copies, device=device)
    words = None if settings.words is None else list(settings.words)
    try:
        solver = solvers.build(kind(recipe), recipe, list(settings.labels), words, opened)
    except ValueError as error:  # of labels that are none of this task's
        raise ConfigError(f"{path}: {error}") from error
    solver.scores = settings.scores
    _load_weights(solver, folder / "model.safetensors")
    return solver


def _resolve_embedder(
    settings: SolverConfig, folder: Path, embedder: str | None
) -> tuple[Specification, list[str]]:
    """Return where to look for the embedder, and other places where its biLM may be."""
    trained = settings.embedder
    glove, copies = trained.glove, []
    if glove is not None and settings.format > 1:
        glove = str(folder / stored_vectors.NAME)
    if trained.elmo is not None and settings.elmo_relative is not None:
        copies = [str((folder / settings.elmo_relative).resolve())]
    if embedder is None:
        return replace(trained, glove=glove), copies
    named = spec.parse(embedder)
    without = (trained.glove is None and named.glove is not None) or (
        trained.elmo is None and named.elmo is not None
    )
    if without or (named == Specification() and trained != named):
        raise ConfigError(
            f"{folder / 'config.json'}: it was trained with {trained}, found --embedder "
            f"{embedder}; expected the place of the same, or of a part of it"
        )
    glove = glove if named.glove is None else named.glove
    if named.elmo is not None:
        return Specification(glove=glove, elmo=named.elmo), []
    return replace(trained, glove=glove), copies


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
