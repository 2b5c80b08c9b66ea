"""Readers of models: our own folders, and those of other packages."""

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

from elmore.text.vocabulary import Vocabulary
from elmore.weights import card, catalogue, checksums, fetch, folder, packaging, pretrained
from elmore.weights.bundle import Bundle
from tests.fuzz.reader import FORMATS, Reader
from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    many_langs,
    write_bilm,
)
from tests.support.tensorflow_checkpoints import (
    module_variables,
    training_variables,
    write_checkpoint,
    write_module,
)
from tests.support.toy_packages import install, save_model

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "Zürich"]
_CONVERT = "elmore.weights.convert."


def use(bundle: Bundle) -> None:
    bundle.run([["the", "cat"], ["Zürich"]])
    card.render_card(bundle, "model")
    card.format_facts(card.model_facts(bundle))


def load(directory: Path) -> None:
    use(pretrained.load(directory))


def _copy(name: str):
    def make(directory: Path) -> None:
        for file in folder.FILES:
            if (FORMATS / name / file).is_file():
                shutil.copy(FORMATS / name / file, directory)

    return make


def _lexicon(directory: Path) -> None:
    many_langs(directory / "theirs", np.random.default_rng(0))
    folder.save(pretrained.load(directory / "theirs"), directory / "ours")
    shutil.rmtree(directory / "theirs")


def _bilm(directory: Path, **changes):
    settings = bilm_options(**changes)
    num_words = {"num_words": len(WORDS)} if "char_cnn" in changes else {}
    weights = bilm_weights(settings, np.random.default_rng(0), **num_words)
    if num_words:
        settings["n_tokens_vocab"] = len(WORDS)
    write_bilm(directory, settings, weights)
    return settings, weights


def _words(directory: Path) -> None:
    _bilm(directory, char_cnn=None)
    Vocabulary(tuple(WORDS)).write(directory / "vocab.txt")


def _allennlp(directory: Path) -> None:
    state = allennlp_state_dict(*_bilm(directory))
    torch.save(state, directory / "weights.th")
    (directory / "weights.hdf5").unlink()


def _tensorflow(directory: Path) -> None:
    _, weights = _bilm(directory)
    rng = np.random.default_rng(0)
    softmax = (
        rng.normal(size=(len(WORDS), 6)).astype("f4"),
        rng.normal(size=len(WORDS)).astype("f4"),
    )
    write_checkpoint(directory / "model.ckpt-7", training_variables(weights, softmax))
    Vocabulary(tuple(WORDS)).write(directory / "vocab.txt")
    (directory / "weights.hdf5").unlink()


def _module(directory: Path) -> None:
    _, weights = _bilm(directory)
    write_module(directory, module_variables(weights))
    for name in ("weights.hdf5", "options.json"):
        (directory / name).unlink()


def _zip(directory: Path) -> None:
    with zipfile.ZipFile(directory / "model.zip", "w") as file:
        for name in ("config.json", "model.safetensors"):
            file.write(FORMATS / "model-1" / name, f"wrapped/{name}")


def _begun_download(directory: Path) -> None:
    (directory / "source").mkdir()
    source = directory / "source" / "weights.bin"
    source.write_bytes(bytes(range(256)))
    (directory / "cache").mkdir()
    (directory / "cache" / "weights.bin.part").write_bytes(bytes(range(100)))
    note = '{"url": "http://example.org/weights.bin", "version": "1", "total": 256}'
    (directory / "cache" / "weights.bin.part.json").write_text(note)
    fetch.fetch(source.as_uri(), directory / "other")


def _fetch(directory: Path) -> None:
    source = directory / "source" / "weights.bin"
    for cache in ("cache", "other"):
        fetch.fetch(source.as_uri(), directory / cache)


def _install_package(directory: Path) -> None:
    install(save_model(directory / "model"), directory)
    for name in ("model", "wheels"):
        shutil.rmtree(directory / name)


def _load_package(directory: Path) -> None:
    sys.path.insert(0, str(directory))
    try:
        use(pretrained.load("toy"))
        catalogue.known_models()
    finally:
        sys.path.remove(str(directory))


def _write_checksums(directory: Path) -> None:
    for name in ("config.json", "model.safetensors", "softmax.safetensors"):
        path = directory / "elmore_model_toy" / name
        checksums.write_record(path, checksums.file_sha256(path))


READERS = (
    *(
        Reader(
            name,
            (
                "elmore.weights.folder",
                "elmore.weights.folder_config",
                "elmore.weights.folder_weights",
                "elmore.weights.tensor_file",
                "elmore.config",
                "elmore.text.vocabulary",
            ),
            _copy(name),
            load,
        )
        for name in ("model-1", "model-2", "model-3", "model-4", "model-5")
    ),
    Reader(
        "model with a lexicon",
        ("elmore.weights.folder",),
        _lexicon,
        lambda directory: load(directory / "ours"),
    ),
    Reader("bilm-tf HDF5", (f"{_CONVERT}bilm_tf",), _bilm, load),
    Reader("bilm-tf HDF5 of words", (f"{_CONVERT}bilm_tf", "elmore.text.vocabulary"), _words, load),
    Reader("AllenNLP state_dict", (f"{_CONVERT}allennlp", f"{_CONVERT}pickles"), _allennlp, load),
    Reader(
        "TensorFlow checkpoint",
        (f"{_CONVERT}detect", f"{_CONVERT}checkpoint", f"{_CONVERT}tensor_bundle"),
        _tensorflow,
        load,
    ),
    Reader("TF-Hub module", (f"{_CONVERT}checkpoint", f"{_CONVERT}tensor_bundle"), _module, load),
    Reader(
        "ELMoForManyLangs",
        (f"{_CONVERT}many_langs", f"{_CONVERT}pickles"),
        lambda directory: many_langs(directory, np.random.default_rng(0)),
        load,
    ),
    Reader(
        "zip of a model",
        ("elmore.weights.archive",),
        _zip,
        lambda directory: load(directory / "model.zip"),
    ),
    Reader(
        "package of a model",
        ("elmore.weights.catalogue", "elmore.weights.checksums"),
        _install_package,
        _load_package,
        _write_checksums,
    ),
    Reader(
        "model to package",
        ("elmore.weights.packaging", "elmore.weights.wheel"),
        save_model,
        lambda directory: packaging.package_model(directory, directory / "dist", name="toy"),
    ),
    Reader(
        "download", ("elmore.weights.fetch", "elmore.weights.checksums"), _begun_download, _fetch
    ),
)
