"""A name or a path to a loaded model, whatever format it is in."""

import difflib
import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

from elmore.errors import WeightsError
from elmore.weights import archive, catalogue, fetch, folder
from elmore.weights.bundle import Bundle
from elmore.weights.convert import allennlp, bilm_tf, many_langs

_TENSORS = (".th", ".pt", ".pth", ".bin")


def load(
    *sources: str | Path,
    vocabulary: str | Path | None = None,
    progress: fetch.Progress | None = None,
) -> Bundle:
    """Load a model: nothing (the bundled one), a name, a folder, a zip, or options and weights."""
    if not sources:
        sources = (catalogue.BUNDLED,)
    words = Path(vocabulary) if vocabulary else None
    if len(sources) == 2:
        return _load_pair(Path(sources[0]), Path(sources[1]), words)
    if len(sources) > 2:
        raise WeightsError(f"expected a model, or options and weights; found {len(sources)} names")
    path = Path(sources[0])
    if path.exists():
        return load_path(path, words)
    return _load_name(str(sources[0]), progress)


def files(*sources: str | Path) -> list[Path]:
    """Give the files of a model that is here, for their checksums."""
    if len(sources) == 2 or Path(sources[0]).exists():
        places = [Path(source) for source in sources]
    elif sources[0] == catalogue.BUNDLED:
        places = [Path(str(resources.files("elmore.weights") / "bundled"))]
    else:
        entry = catalogue.known()[str(sources[0])]
        place = fetch.cache_folder() / str(sources[0])
        places = [place / url.rsplit("/", 1)[-1] for url in entry.files]
    inside = [sorted(place.iterdir()) if place.is_dir() else [place] for place in places]
    return [path for found in inside for path in found if path.is_file()]


def _load_name(name: str, progress: fetch.Progress | None) -> Bundle:
    if name == catalogue.BUNDLED:
        with resources.as_file(resources.files("elmore.weights") / "bundled") as path:
            return folder.load(path)
    entries = catalogue.known()
    if name not in entries:
        close = difflib.get_close_matches(name, list(entries), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "'elmore models' lists the names"
        raise WeightsError(f"{name}: no such file or folder, and no model of that name; {hint}")
    entry = entries[name]
    place = fetch.cache_folder() / name
    digests = entry.sha256 or (None,) * len(entry.files)
    files = [
        fetch.fetch(url, place, sha256=digest, progress=progress)
        for url, digest in zip(entry.files, digests, strict=True)
    ]
    bundle = _load_pair(*files) if len(files) == 2 else load_path(files[0])
    card = replace(
        bundle.card, name=name, language=entry.language, licence=entry.licence, data=entry.data
    )
    return replace(bundle, card=card)


def load_path(path: Path, vocabulary: Path | None = None) -> Bundle:
    """Load from one file or folder, told by what it holds."""
    if path.is_dir():
        return _load_folder(path, vocabulary)
    if archive.is_zip(path) and path.suffix not in _TENSORS:  # torch's own files are zips too
        with tempfile.TemporaryDirectory(prefix="elmore-") as place:
            archive.unpack(path, Path(place) / "model")
            inner = archive.find(Path(place) / "model")
            return _load_folder(inner, vocabulary, shown=path)
    if path.suffix in _TENSORS:
        return allennlp.read(path)
    if path.suffix in (".hdf5", ".h5"):
        return bilm_tf.read(_options_beside(path), path, vocabulary or _vocabulary_in(path.parent))
    raise WeightsError(
        f"{path}: expected a model folder, a zip, weights.hdf5 or a torch state_dict; found a file "
        f"ending in {path.suffix!r}"
    )


def _load_folder(path: Path, vocabulary: Path | None, shown: Path | None = None) -> Bundle:
    if many_langs.is_one(path):
        return many_langs.read(path)
    if folder.is_one(path):
        return folder.load(path)
    weights = sorted(path.glob("*.hdf5"))
    if len(weights) == 1:
        words = vocabulary or _vocabulary_in(path)
        return bilm_tf.read(_options_beside(weights[0]), weights[0], words)
    found = ", ".join(sorted(item.name for item in path.iterdir())[:6]) or "nothing"
    raise WeightsError(
        f"{shown or path}: found {found}; expected config.json and model.safetensors, one .hdf5 "
        "file with its options, or encoder.pkl and token_embedder.pkl"
    )


def _options_beside(weights: Path) -> Path:
    exact = weights.with_name("options.json")
    found = [exact] if exact.is_file() else sorted(weights.parent.glob("*options*.json"))
    if len(found) != 1:
        raise WeightsError(
            f"{weights}: {len(found)} options files beside it; pass the right one before it"
        )
    return found[0]


def _vocabulary_in(place: Path) -> Path | None:
    names = ("vocab.txt", "vocab.txt.gz", "vocabulary.txt")
    return next((place / name for name in names if (place / name).is_file()), None)


def _load_pair(options: Path, weights: Path, vocabulary: Path | None = None) -> Bundle:
    if weights.suffix == ".json":
        options, weights = weights, options
    for path in (options, weights):
        if not path.is_file():
            found = "a folder" if path.is_dir() else "nothing"
            raise WeightsError(f"{path}: expected a file of options or weights, found {found}")
    if weights.suffix in _TENSORS:
        return allennlp.read(weights, options)
    return bilm_tf.read(options, weights, vocabulary or _vocabulary_in(weights.parent))
