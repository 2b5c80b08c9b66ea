"""A trained task as a folder: config.json, model.safetensors and a model card.

Word vectors of a file are copied to vectors.safetensors, so that the folder can be moved. A frozen
biLM is not copied but identified by its sha256: it is found by its name in `elmore models`, at its
recorded path, at its recorded path relative to the folder, or where `--embedder` says.
"""

import contextlib
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import elmore
from elmore import atomic, config, strict_json
from elmore.errors import ConfigError, WeightsError
from elmore.tasks import registry, trained_task
from elmore.tasks.embedding import word_vectors
from elmore.tasks.embedding.spec import EmbedderSpec, OpenEmbedders, parse_spec, reopen_embedders
from elmore.tasks.trained_task import TrainedTask
from elmore.train.distributed import select_device
from elmore.weights.modules import check_weights

# 1: word vectors were left where they were; 2: keys of the recipe had other names; 4: widths of
# character filters are a list
FORMAT = 4
FILES = frozenset({"config.json", "model.safetensors", "README.md", word_vectors.COPY_NAME})


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """The contents of config.json."""

    format: int
    task: str
    recipe: dict
    labels: tuple[str, ...]
    words: tuple[str, ...] | None = None
    embedder: EmbedderSpec
    """As it was named: word vectors by the name of their file, a biLM by its name or path."""
    elmo_relative: str | None = None
    """The path of the biLM relative to this folder."""
    sha256: dict[str, str]
    """Digests of the embedders, under `glove` and `elmo`."""
    scores: dict[str, float] = field(default_factory=dict)
    versions: dict = field(default_factory=dict)


def save_task(trained: TrainedTask, folder: Path) -> None:
    """Write a task to a folder, completely or not at all, replacing an earlier one.

    Raises:
        WeightsError: the disk is full.
    """
    settings = CheckpointConfig(
        format=FORMAT,
        task=trained.task.name,
        recipe=config.as_dict(trained.task.config),
        labels=tuple(trained.labels),
        words=None if trained.words is None else tuple(trained.words),
        **_embedder_fields(trained.embedders.spec, folder),
        sha256=trained.embedders.digests,
        scores=trained.scores,
        versions={"elmore": elmore.__version__, "torch": torch.__version__},
    )
    state = trained.network.state_dict()  # without a frozen biLM and frozen word vectors
    tensors = {name: tensor.contiguous().cpu() for name, tensor in state.items()}
    with atomic.folder(folder, replaces=FILES, is_ours=_is_ours) as temporary:
        encoded = strict_json.encode(config.as_dict(settings), indent=2)
        (temporary / "config.json").write_bytes(encoded)
        try:
            save_file(tensors, temporary / "model.safetensors")
            if trained.embedders.vectors is not None:
                _save_vectors(trained.embedders, folder, temporary / word_vectors.COPY_NAME)
        except SafetensorError as error:  # a full disk comes as this, not as an OSError
            raise WeightsError(f"{folder}: could not be written ({error})") from error
        (temporary / "README.md").write_text(_card(settings), encoding="utf-8", errors="replace")
    if folder not in trained.embedders.copies:
        trained.embedders.copies.append(folder)


def _is_ours(folder: Path) -> bool:
    return config.has_format(folder / "config.json")


def _embedder_fields(spec: EmbedderSpec, folder: Path) -> dict[str, Any]:
    glove = None if spec.glove is None else Path(spec.glove).name
    relative = None
    if spec.elmo and Path(spec.elmo).exists():
        with contextlib.suppress(ValueError):  # on another drive
            relative = Path(os.path.relpath(spec.elmo, folder)).as_posix()
    return {"embedder": replace(spec, glove=glove), "elmo_relative": relative}


def _save_vectors(embedders: OpenEmbedders, folder: Path, path: Path) -> None:
    """Hard-link the copy of an earlier save or of another run, if any: it can be large."""
    assert embedders.vectors is not None
    for other in (folder, *embedders.copies):
        if _read_digests(other / "config.json").get("glove") == embedders.digests["glove"]:
            with contextlib.suppress(OSError):
                path.hardlink_to(other / word_vectors.COPY_NAME)
                return
    word_vectors.save_copy(embedders.vectors, path)


def _read_digests(path: Path) -> dict[str, str]:
    try:
        return config.build(CheckpointConfig, config.read_json(path), str(path)).sha256
    except ConfigError:
        return {}


def load_task(
    folder: str | Path,
    *,
    device: str = "auto",
    embedder: str | None = None,
    embedders: OpenEmbedders | None = None,
) -> TrainedTask:
    """Load a trained task.

    Args:
        folder: a folder that `save_task` wrote, or a run folder, whose best weights are meant.
        device: `auto`, `cpu` or `cuda`.
        embedder: new place of the word vectors or the biLM used in training, if moved.
        embedders: embedders in memory, used instead of opening them if they are the same.

    Returns:
        The task, with `predict` for texts and `evaluate` for a file.

    Raises:
        ConfigError: there is no trained task, or its embedders are missing or have changed.
        WeightsError: the weights are damaged.
    """
    torch_device = select_device(device)
    folder = Path(folder)
    best = folder / "best" if (folder / "best" / "config.json").is_file() else folder
    path = best / "config.json"
    settings = _read_settings(path, folder)
    task_class = registry.find_task(settings.task)
    current = config.rename_old_keys(settings.recipe, f"{path}: recipe")
    recipe = config.build(task_class.config_class, current, f"{path}: recipe")
    if embedders is None or embedders.digests != settings.sha256:
        spec, other_elmos = _locate_embedders(settings, best, embedder)
        embedders = reopen_embedders(
            spec, settings.sha256, path, other_elmos=other_elmos, device=str(torch_device)
        )
    words = None if settings.words is None else list(settings.words)
    try:
        trained = trained_task.build(task_class(recipe), list(settings.labels), words, embedders)
    except ValueError as error:  # the labels are not labels of this task
        raise ConfigError(f"{path}: {error}") from error
    trained.scores = settings.scores
    _load_weights(trained, best / "model.safetensors")
    trained.network.to(torch_device)
    return trained


def _locate_embedders(
    settings: CheckpointConfig, folder: Path, embedder: str | None
) -> tuple[EmbedderSpec, list[str]]:
    """Return where to look for the embedders, and other places where the biLM may be."""
    recorded = settings.embedder
    glove, other_elmos = recorded.glove, []
    if glove is not None and settings.format > 1:
        glove = str(folder / word_vectors.COPY_NAME)
    if recorded.elmo is not None and settings.elmo_relative is not None:
        other_elmos = [str((folder / settings.elmo_relative).resolve())]
    if embedder is None:
        return replace(recorded, glove=glove), other_elmos
    named = parse_spec(embedder)
    adds = (recorded.glove is None and named.glove is not None) or (
        recorded.elmo is None and named.elmo is not None
    )
    if adds or (named == EmbedderSpec() and recorded != named):
        raise ConfigError(
            f"{folder / 'config.json'}: trained with {recorded}, found --embedder {embedder}; "
            "expected the place of the same embedder, or of a part of it"
        )
    glove = glove if named.glove is None else named.glove
    if named.elmo is not None:
        return EmbedderSpec(glove=glove, elmo=named.elmo), []
    return replace(recorded, glove=glove), other_elmos


def find_runs(folder: Path) -> list[str]:
    """Return the names of the trained runs of a sweep, in the order of their numbers."""
    patterns = ("seed-*", "fraction-*", "fraction-*/seed-*")
    configs = [path for name in patterns for path in folder.glob(f"{name}/best/config.json")]
    names = [path.parent.parent.relative_to(folder).as_posix() for path in configs]
    numbers = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")
    return sorted(names, key=lambda name: ([float(n) for n in numbers.findall(name)], name))


def _read_settings(path: Path, folder: Path) -> CheckpointConfig:
    runs = [] if path.is_file() else find_runs(folder)
    if runs:
        raise ConfigError(
            f"{folder}: holds {len(runs)} trained runs; name one of them, as {folder / runs[0]}"
        )
    if not path.is_file():
        raise ConfigError(f"{folder}: no trained task found; name a folder that `task train` wrote")
    data = config.read_json(path)
    if "task" not in data:
        raise ConfigError(f"{path}: not a trained task, but a language model or something else")
    config.check_format(data, FORMAT, str(path), error=ConfigError)
    return config.build(CheckpointConfig, data, str(path))


def _load_weights(trained: TrainedTask, path: Path) -> None:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file ({error})") from error
    expected = trained.network.state_dict()
    unmatched = sorted(set(expected) ^ set(tensors))
    if unmatched:
        where = "missing" if unmatched[0] in expected else "not in the network of config.json"
        raise WeightsError(f"{path}: {unmatched[0]} is {where}; are both files of the same run?")
    for name, tensor in tensors.items():
        check_weights(tensor, f"{path}: {name}")
        if tensor.shape != expected[name].shape:
            raise WeightsError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, config.json asks for "
                f"{tuple(expected[name].shape)}; are both files of the same run?"
            )
    trained.network.load_state_dict(tensors)
    trained.network.eval()


def _card(settings: CheckpointConfig) -> str:
    scores = "".join(f"| {name} | {value:.2f} |\n" for name, value in settings.scores.items())
    return f"""# A model for {settings.task}

Trained with elmore {elmore.__version__}; embedder `{settings.embedder}`.

| score on the dev examples | |
|---|---|
{scores}
Labels: {", ".join(settings.labels)}.

```
elmore task predict RUN "A sentence to try."
```
"""
