"""A name or a path to a loaded model, whatever format it is in."""

import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

from elmore import cache
from elmore.errors import ConfigError, WeightsError
from elmore.weights import archive, catalogue, checksums, fetch, folder
from elmore.weights.bundle import Bundle
from elmore.weights.convert import allennlp, bilm_tf, checkpoint, many_langs

_HDF5 = (".hdf5", ".h5")
_TENSORS = (".th", ".pt", ".pth", ".bin")
_WEIGHTS = (*_HDF5, *_TENSORS, checkpoint.INDEX)


def load(
    *sources: str | Path,
    vocabulary: str | Path | None = None,
    progress: fetch.Progress | None = None,
) -> Bundle:
    """Load a model: nothing (the bundled one), a name, a folder, a zip, or options and weights."""
    if len(sources) > 2:
        raise WeightsError(f"expected a model, or options and weights; found {len(sources)} names")
    words = Path(vocabulary) if vocabulary else None
    sources = tuple(map(_of_checkpoint, sources))
    if len(sources) == 2:
        return _load_pair(Path(sources[0]), Path(sources[1]), words)
    name = str(sources[0]) if sources else catalogue.BUNDLED
    if sources and Path(name).exists():
        return _load_path(Path(name), words)
    _refuse_vocabulary(words, name)
    return _load_name(name, progress)


def files(*sources: str | Path) -> list[Path]:
    """Give the files of a model that is here, for their checksums."""
    sources = tuple(map(_of_checkpoint, sources))
    if len(sources) == 2 or Path(sources[0]).exists():
        places = [_of_run(Path(source)) for source in sources]
    else:
        places = _places(str(sources[0]))
    return [path for place in places for path in _inside(place) if path.is_file()]


def _inside(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(place.rglob("*") if checkpoint.is_module(place) else place.iterdir())
    return checkpoint.files(place) if place.suffix == checkpoint.INDEX else [place]


def _of_checkpoint(source: str | Path) -> str | Path:
    """Take the name of a TensorFlow checkpoint for its index: there is no file of that name."""
    index = Path(f"{source}{checkpoint.INDEX}")
    return index if index.is_file() and not Path(source).exists() else source


def _of_run(place: Path) -> Path:
    """Give the best checkpoint of a run folder, which is what is meant by it."""
    return place / "best" if folder.is_one(place / "best") else place


def _places(name: str) -> list[Path]:
    """Say where the model of a name is, once it is here."""
    if name == catalogue.BUNDLED:
        return [Path(str(resources.files("elmore.weights") / "bundled"))]
    place = cache.folder() / name
    return [place / fetch.file_name(url) for url in catalogue.entry(name).files]


def _load_name(name: str, progress: fetch.Progress | None) -> Bundle:
    entry = catalogue.entry(name)
    digests = entry.sha256 or (None,) * len(entry.files)
    for url, digest in zip(entry.files, digests, strict=True):
        fetch.fetch(url, cache.folder() / name, sha256=digest, progress=progress)
    places = _places(name)
    if name == catalogue.BUNDLED:
        checksums.verify(places[0], folder.FILES - {"README.md"})
    bundle = _load_pair(*places) if len(places) == 2 else _load_path(places[0])
    card = replace(
        bundle.card, name=name, language=entry.language, licence=entry.licence, data=entry.data
    )
    return replace(bundle, card=card)


def _load_path(path: Path, vocabulary: Path | None = None) -> Bundle:
    """Load from one file or folder, told by what it holds."""
    if path.is_dir():
        return _load_folder(path, vocabulary, shown=path)
    if path.suffix in _WEIGHTS:  # torch's own files are zips too
        return _load_weights(path, vocabulary)
    if archive.is_zip(path):
        with tempfile.TemporaryDirectory(prefix="elmore-") as place:
            archive.unpack(path, Path(place) / path.stem)
            return _load_folder(archive.find(Path(place) / path.stem), vocabulary, shown=path)
    raise WeightsError(
        f"{path}: expected a model folder, a zip, weights.hdf5, a torch state_dict or the index of "
        f"a TensorFlow checkpoint; found a file ending in {path.suffix!r}"
    )


def _load_folder(path: Path, vocabulary: Path | None, *, shown: Path) -> Bundle:
    if many_langs.is_one(path):
        _refuse_vocabulary(vocabulary, str(shown))
        return many_langs.read(path)
    path = _of_run(path)
    if folder.is_one(path):
        _refuse_vocabulary(vocabulary, str(shown))
        return folder.load(path)
    weights = [item for item in sorted(path.iterdir()) if item.suffix in _HDF5 + _TENSORS]
    if not weights and (index := checkpoint.in_folder(path)):
        weights = [index]
    if len(weights) == 1:
        return _load_weights(weights[0], vocabulary)
    found = ", ".join(sorted(item.name for item in path.iterdir())[:6]) or "nothing"
    raise WeightsError(
        f"{shown}: found {found}; expected config.json and model.safetensors, one file of weights "
        "with its options, a TensorFlow checkpoint, or encoder.pkl and token_embedder.pkl"
    )


def _load_weights(weights: Path, vocabulary: Path | None) -> Bundle:
    exact = weights.with_name("options.json")
    options = [exact] if exact.is_file() else sorted(weights.parent.glob("*options*.json"))
    if len(options) == 1:
        return _load_pair(options[0], weights, vocabulary)
    if not options and weights.suffix == checkpoint.INDEX:
        return checkpoint.read(weights, None, vocabulary)
    if not options and weights.suffix in _TENSORS:
        _refuse_vocabulary(vocabulary, str(weights))
        return allennlp.read(weights)
    raise WeightsError(
        f"{weights}: {len(options)} options files beside it; pass the right one before it"
    )


def _load_pair(options: Path, weights: Path, vocabulary: Path | None = None) -> Bundle:
    if weights.suffix == ".json":
        options, weights = weights, options
    for path in (options, weights):
        if not path.is_file():
            found = "a folder" if path.is_dir() else "nothing"
            raise WeightsError(f"{path}: expected a file of options or weights, found {found}")
    if weights.suffix in _TENSORS:
        _refuse_vocabulary(vocabulary, str(weights))
        return allennlp.read(weights, options)
    if weights.suffix == checkpoint.INDEX:
        return checkpoint.read(weights, options, vocabulary)
    return bilm_tf.read(options, weights, vocabulary)


def _refuse_vocabulary(vocabulary: Path | None, model: str) -> None:
    if vocabulary is not None:
        raise ConfigError(f"{vocabulary}: {model} takes no vocabulary from outside; leave it away")
