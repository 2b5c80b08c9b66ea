"""Load a model by name or path, in any supported format."""

import tempfile
from dataclasses import replace
from importlib import import_module, resources
from pathlib import Path
from types import ModuleType

import elmore
from elmore import cache
from elmore.errors import ConfigError, MissingPackageError, WeightsError
from elmore.extras import require_torch, say_missing
from elmore.weights import archive, catalogue, checksums, fetch, folder, packages
from elmore.weights.bundle import Bundle
from elmore.weights.convert import detect

_HDF5 = (".hdf5", ".h5")
_TENSORS = (".th", ".pt", ".pth", ".bin")
_LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING")
_WEIGHTS = (*_HDF5, *_TENSORS, detect.INDEX)


def load(
    *sources: str | Path,
    vocabulary: str | Path | None = None,
    progress: fetch.Progress | None = None,
) -> Bundle:
    """Load a model.

    Args:
        sources: Nothing (the bundled model), a name, a folder, a zip, or options and weights.
        vocabulary: The vocabulary file of weights that do not include one.
        progress: Called during a download.

    Raises:
        WeightsError: The model cannot be found, downloaded or read.
    """
    if len(sources) > 2:
        raise WeightsError(f"expected a model, or options and weights; found {len(sources)} paths")
    words = Path(vocabulary) if vocabulary else None
    sources = tuple(map(_checkpoint_index, sources))
    if len(sources) == 2:
        return _load_pair(Path(sources[0]), Path(sources[1]), words)
    name = model_name(*sources)
    if name is None:
        return _load_path(Path(sources[0]), words)
    _check_no_vocabulary(words, name)
    return _load_name(name, progress)


def model_name(*sources: str | Path) -> str | None:
    """Return the name that a model is looked up by; None for paths.

    No source is the bundled model, whatever lies in the working directory.
    """
    if not sources:
        return catalogue.BUNDLED
    is_path = len(sources) > 1 or Path(sources[0]).exists()
    return None if is_path else str(sources[0])


def model_files(*sources: str | Path) -> list[Path]:
    """Return the local files of a model, given as for `load`."""
    paths = _resolve_paths(*map(_checkpoint_index, sources))
    return [file for path in paths for file in _list_files(path) if file.is_file()]


def model_folder(*sources: str | Path) -> Path:
    """Return the folder of a model, given as for `load`; a path may be a run.

    Raises:
        WeightsError: There is no such model, or it has another format.
    """
    paths = _resolve_paths(*sources)
    if len(paths) > 1 or not folder.looks_like_model(paths[0]):
        source = " ".join(map(str, sources))
        raise WeightsError(
            f"{source}: expected a model folder with config.json and model.safetensors; convert it "
            f"first: elmore convert {source} FOLDER"
        )
    (path,) = paths
    return path


def package_version(*sources: str | Path) -> str:
    """Return the package that a named model is part of, and its version; empty for other models."""
    name = model_name(*sources)
    if name is None:
        return ""
    entry = catalogue.known_models().get(name)
    if entry is not None and entry.installed:
        return str(entry.installed[0])
    return f"elmore {elmore.__version__}" if name == catalogue.BUNDLED else ""


def _resolve_paths(*sources: str | Path) -> list[Path]:
    """Return the files or folder of a model."""
    name = model_name(*sources)
    if name is None:
        return [_best_of_run(Path(source)) for source in sources]
    return _local_paths(name, catalogue.find_model(name))


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*") if detect.is_module(path) else path.iterdir())
    is_index = path.suffix == detect.INDEX
    return _converter("checkpoint", path).checkpoint_files(path) if is_index else [path]


def _checkpoint_index(source: str | Path) -> str | Path:
    """Replace the name of a TensorFlow checkpoint, which is not a file, by its index."""
    index = Path(f"{source}{detect.INDEX}")
    return index if index.is_file() and not Path(source).exists() else source


def _best_of_run(path: Path) -> Path:
    """Return the best model of a run folder; any other path is returned unchanged."""
    return path / "best" if folder.looks_like_model(path / "best") else path


def is_model(source: str | Path) -> bool:
    """Return whether `load` would take something for a model: a path, or a name it knows."""
    path = Path(source)
    if path.is_file():
        return path.suffix in _WEIGHTS or archive.is_zip(path)
    if not path.is_dir():
        return str(source) in catalogue.known_models()
    return (
        detect.is_many_langs(path)
        or folder.looks_like_model(_best_of_run(path))
        or any(item.suffix in _HDF5 + _TENSORS for item in path.iterdir())
        or detect.find_index(path) is not None
    )


def _local_paths(name: str, entry: catalogue.Entry) -> list[Path]:
    """Return where the files of a named model are or will be."""
    if entry.installed:
        return [packages.package_folder(entry.installed[0])]
    if not entry.files:
        return [Path(str(resources.files("elmore.weights") / "bundled"))]
    return [cache.cache_dir() / name / fetch.file_name(url) for url in entry.files]


def _load_name(name: str, progress: fetch.Progress | None) -> Bundle:
    entry = catalogue.find_model(name)
    digests = entry.sha256 or (None,) * len(entry.files)
    for url, digest in zip(entry.files, digests, strict=True):
        fetch.fetch(url, cache.cache_dir() / name, sha256=digest, progress=progress)
    paths = _local_paths(name, entry)
    if entry.installed:
        _verify_checksums(paths[0], entry.installed[0].advice)
    elif not entry.files:
        _verify_checksums(paths[0], f"reinstall elmore: {packages.REINSTALL} elmore")
    bundle = _load_pair(*paths) if len(paths) == 2 else _load_path(paths[0])
    card = replace(bundle.card, name=name)
    if not entry.installed:  # the card of a package is its own
        card = replace(card, language=entry.language, licence=entry.licence, data=entry.data)
    return replace(bundle, card=card)


def _verify_checksums(path: Path, advice: str) -> None:
    """Compare the files of an installed model with their checksums."""
    absent = {
        name
        for name in folder.OPTIONAL_FILES
        if not ((path / name).exists() or checksums.record_path(path / name).exists())
    }
    names = sorted(folder.FILES - {"README.md"} - absent)
    checksums.verify(path, names, advice=advice)


def _load_path(path: Path, vocabulary: Path | None = None) -> Bundle:
    """Load a file or folder, by its content."""
    if path.is_dir():
        return _load_folder(path, vocabulary, shown=path)
    if path.suffix in _WEIGHTS:  # torch's files are zips too
        return _load_weights(path, vocabulary)
    if archive.is_zip(path):
        with tempfile.TemporaryDirectory(prefix="elmore-") as tmp:
            archive.unpack(path, Path(tmp) / path.stem)
            content = archive.find_content(Path(tmp) / path.stem)
            return _load_folder(content, vocabulary, shown=path)
    raise WeightsError(
        f"{path}: expected a model folder, a zip, weights.hdf5, a torch state_dict or the index of "
        f"a TensorFlow checkpoint; found a file ending in {path.suffix!r}"
    )


def _load_folder(path: Path, vocabulary: Path | None, *, shown: Path) -> Bundle:
    if detect.is_many_langs(path):
        _check_no_vocabulary(vocabulary, str(shown))
        bundle = _converter("many_langs", shown).read_many_langs(path)
        return _with_stated_licence(bundle, path)
    path = _best_of_run(path)
    if folder.looks_like_model(path):
        _check_no_vocabulary(vocabulary, str(shown))
        return folder.load(path)
    weights = [item for item in sorted(path.iterdir()) if item.suffix in _HDF5 + _TENSORS]
    if not weights and (index := detect.find_index(path)):
        weights = [index]
    if len(weights) == 1:
        return _with_stated_licence(_load_weights(weights[0], vocabulary), path)
    listing = ", ".join(sorted(item.name for item in path.iterdir())[:6]) or "nothing"
    raise WeightsError(
        f"{shown}: found {listing}; expected config.json and model.safetensors, one file of "
        "weights with its options, a TensorFlow checkpoint, or encoder.pkl and token_embedder.pkl"
    )


def _with_stated_licence(bundle: Bundle, path: Path) -> Bundle:
    """Return a converted model with the first line of the licence file in its folder, if any."""
    for file in sorted(path.iterdir()):
        if file.stem.upper() in _LICENCE_FILES and file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            stated = next((line.strip() for line in text.splitlines() if line.strip()), "")
            return replace(bundle, card=replace(bundle.card, licence=stated[:80]))
    return bundle


def _load_weights(weights: Path, vocabulary: Path | None) -> Bundle:
    exact = weights.with_name("options.json")
    options = [exact] if exact.is_file() else sorted(weights.parent.glob("*options*.json"))
    if len(options) == 1:
        return _load_pair(options[0], weights, vocabulary)
    if not options and weights.suffix == detect.INDEX:
        return _converter("checkpoint", weights).read_checkpoint(weights, None, vocabulary)
    if not options and weights.suffix in _TENSORS:
        _check_no_vocabulary(vocabulary, str(weights))
        return _converter("allennlp", weights).read_allennlp(weights)
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
        _check_no_vocabulary(vocabulary, str(weights))
        return _converter("allennlp", weights).read_allennlp(weights, options)
    if weights.suffix == detect.INDEX:
        return _converter("checkpoint", weights).read_checkpoint(weights, options, vocabulary)
    return _converter("bilm_tf", weights).read_bilm_tf(options, weights, vocabulary)


def _converter(name: str, path: Path) -> ModuleType:
    """Return the module that reads a foreign format.

    Raises:
        MissingPackageError: torch or h5py is not installed.
    """
    what = f"{path}: a model that elmore did not write"
    require_torch(what)
    try:
        return import_module(f"elmore.weights.convert.{name}")
    except ModuleNotFoundError as error:
        raise MissingPackageError(say_missing(what, error.name)) from error


def _check_no_vocabulary(vocabulary: Path | None, model: str) -> None:
    if vocabulary is not None:
        raise ConfigError(f"{vocabulary}: {model} has its own vocabulary; omit this one")
