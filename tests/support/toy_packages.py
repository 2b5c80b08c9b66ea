"""Tiny models as packages, installed into a folder on the path of this process.

Used by tests/weights and tests/cli.
"""

import zipfile
from pathlib import Path

from elmore.model.bilm import BiLM
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import folder, packaging
from elmore.weights.bundle import Bundle, Card
from tests.support import toy_corpus


def save_model(path: Path, **card: str) -> Path:
    """Save a tiny model with random weights."""
    facts = {"name": "toy", "language": "Klingon", "licence": "MIT", "data": "letters"} | card
    vocabulary = Vocabulary(("<UNK>", "<S>", "</S>", "qapla'"))
    model = BiLM(toy_corpus.recipe().model)
    softmax = Softmax(SoftmaxConfig(), len(vocabulary), model.config.lstm.output_dim)
    card = Card(**facts)
    folder.save(Bundle(model, ByteAlphabet(), vocabulary, card, softmax=softmax), path)
    return path


def install(model: Path, target: Path, **options: str) -> Path:
    """Unpack a model's wheel, as pip does with one that needs no scripts; return its folder."""
    wheel = packaging.package_model(model, target / "wheels", **options)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(target)
    return target / wheel.name.split("-")[0]


def rename_distribution(target: Path, old: str, new: str) -> None:
    """Give an unpacked distribution another name: another publisher's."""
    (result,) = target.glob(f"{old.replace('-', '_')}-*.dist-info")
    renamed = result.with_name(result.name.replace(old.replace("-", "_"), new.replace("-", "_")))
    result.rename(renamed)
    metadata = renamed / "METADATA"
    metadata.write_text(metadata.read_text().replace(f"Name: {old}", f"Name: {new}"))
