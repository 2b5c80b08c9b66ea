"""Write a static site: the page with a model that runs in the visitor's browser.

    write_site(Path("site"), "english")

The folder has the page, the native library as WebAssembly, and the weights as a model folder has
them, but the whitening as a safetensors file. Any web server can serve it, and no text leaves the
visitor's machine.
"""

import json
import shutil
import tempfile
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from elmore import atomic, config
from elmore.errors import ConfigError, WeightsError
from elmore.model.weight_shapes import tail_cutoffs
from elmore.text.characters import ByteAlphabet
from elmore.weights import catalogue, checksums, fetch, folder, folder_weights, pretrained
from elmore.weights.bundle import Bundle
from elmore.weights.tensor_file import SCALE
from elmore.weights.whitening import Whitening

FORMAT = 2  # of model.json, which model_files.js reads; 2 added whitening
MAX_BYTES = 32 * 10**6
"""Of the model: what a visitor may be asked to download."""

_PAGE = (
    *("page.css", "page.js", "dom.js", "examples.js", "link.js", "neighbors.js"),
    *("settings.js", "substitutes.js", "vectors.js", "start_worker.js", "worker.js"),
    *("model.js", "model_files.js", "safetensors.js", "tokenizer.js", "alphabet.js", "bilm.js"),
    *("stack.js", "stack_worker.js", "softmax.js", "whitening.js", "native.js", "elmore.wasm"),
)
_RENAMED = {"index.html": "page.html", "backend.js": "worker_backend.js"}
_WEIGHTS = ("model.safetensors", folder_weights.SOFTMAX_FILE)
_WHITENING = "whitening.safetensors"
_MODEL = (*_WEIGHTS, "vocabulary.txt", _WHITENING)
_TEXTS = ("README.md", "LICENSE.txt")  # the card of the model and its licence
_FILES = frozenset({*_PAGE, *_RENAMED, *_MODEL, *_TEXTS, "model.json"})
# A static site sends no headers, so the page itself says that nothing may be sent anywhere.
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)
# Browsers run no modules of a page from the disk, so this is what such a page shows.
_STARTING = (
    "Starting … (a page on the disk does not start: open it from a web server, such as python -m "
    "http.server)"
)


class SiteReport(NamedTuple):
    """What was written."""

    num_bytes: int
    """Of the whole site."""
    model_bytes: int
    """Of the weights, the vocabulary and the whitening."""


def write_site(
    destination: Path,
    *sources: str | Path,
    vocabulary: Path | None = None,
    overwrite: bool = False,
    progress: fetch.Progress | None = None,
) -> SiteReport:
    """Write the page and a model into a folder.

    A model folder that is small enough is copied as it is; any other model is stored in int8.

    Args:
        destination: The folder.
        sources: A model, as `pretrained.load` takes it.
        vocabulary: The vocabulary file of weights that do not include one.
        overwrite: Replace a site that was written before.
        progress: Called during a download.

    Returns:
        The sizes of the site and of the model in it.

    Raises:
        ElmoreError: The model cannot be read, does not read bytes or is too large, or the folder
            cannot be written.
    """
    bundle = pretrained.load(*sources, vocabulary=vocabulary, progress=progress)
    if not isinstance(bundle.alphabet, ByteAlphabet):
        raise ConfigError(
            f"{_name(bundle)} reads words or characters of a lexicon; a page in the browser runs "
            "models that read bytes, as ELMo's do"
        )
    with atomic.folder(
        destination,
        replaces=_FILES if overwrite else frozenset(),
        is_ours=lambda path: config.has_format(path / "model.json"),
    ) as site:
        _write_page(site)
        _write_weights(bundle, _model_folder(*sources), site)
        if bundle.vocabulary:
            bundle.vocabulary.write(site / "vocabulary.txt")
        if bundle.whitening:
            (site / _WHITENING).write_bytes(_whitening_tensors(bundle.whitening))
        names = [name for name in _MODEL if (site / name).exists()]
        model_bytes = sum((site / name).stat().st_size for name in names)
        if model_bytes > MAX_BYTES:
            raise WeightsError(
                f"{_name(bundle)} has {model_bytes / 1e6:.0f} MB in int8, and a page in the "
                f"browser may have {MAX_BYTES / 1e6:.0f} MB of model; export a smaller one, such "
                f"as {catalogue.BUNDLED}"
            )
        settings = _settings(bundle, [site / name for name in (*names, "elmore.wasm")])
        (site / "model.json").write_text(json.dumps(settings), encoding="utf-8")
        return SiteReport(sum(path.stat().st_size for path in site.iterdir()), model_bytes)


def _model_folder(*sources: str | Path) -> Path | None:
    """Return the folder of a model that has one."""
    try:
        return pretrained.model_folder(*sources)
    except WeightsError:
        return None


def _write_page(site: Path) -> None:
    package = resources.files("elmore.browser")
    for name in (*_PAGE, *_RENAMED):
        (site / name).write_bytes(package.joinpath(_RENAMED.get(name, name)).read_bytes())
    page = (site / "index.html").read_text(encoding="utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    page = page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}', 1)
    page = page.replace('aria-live="polite">', f'aria-live="polite">{_STARTING}', 1)
    (site / "index.html").write_text(page, encoding="utf-8", newline="\n")


def _write_weights(bundle: Bundle, source: Path | None, site: Path) -> None:
    """Copy the weights of a model folder, or store them in int8 where that makes them smaller."""
    if source is not None and _size(source) <= MAX_BYTES:
        _copy(source, site)
        return
    with tempfile.TemporaryDirectory(prefix="elmore-") as tmp:
        folder.save(bundle, Path(tmp) / "model", storage="int8")
        _copy(Path(tmp) / "model", site)


def _size(source: Path) -> int:
    return sum((source / name).stat().st_size for name in _WEIGHTS if (source / name).exists())


def _copy(source: Path, site: Path) -> None:
    for name in (*_WEIGHTS, *_TEXTS):
        if (source / name).is_file():
            shutil.copyfile(source / name, site / name)


def _whitening_tensors(whitening: Whitening) -> bytes:
    """Return a whitening as a safetensors file, which the page reads as it reads the weights."""
    numbers, scales = whitening.projection
    arrays = {"mean": whitening.mean, "projection": numbers, "projection" + SCALE: scales}
    # safetensors writes memory as it is, and a learned projection is in column order
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def _settings(bundle: Bundle, files: list[Path]) -> dict[str, object]:
    """Return model.json: what the page must know of the model, and how its files are checked."""
    softmax, vocabulary, cutoffs = bundle.softmax, bundle.vocabulary, None
    if softmax is not None and vocabulary is not None:
        is_adaptive = softmax.config.kind == "adaptive"
        cutoffs = tail_cutoffs(softmax.config, len(vocabulary)) if is_adaptive else ()
    return {
        "format": FORMAT,
        "name": _name(bundle),
        "model": config.as_dict(bundle.config),
        "cutoffs": cutoffs,  # of the adaptive softmax; null where there is no softmax
        "whitening": bundle.whitening.layers if bundle.whitening else None,  # those it joins
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": checksums.file_sha256(path)}
            for path in files
        },
    }


def _name(bundle: Bundle) -> str:
    return bundle.card.name or "this model"
