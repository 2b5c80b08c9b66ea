"""Measure the files and wheels of a model of the original size (random normal weights).

    python benchmarks/wheel_size.py --storage int6

The wheel of `elmore models package`, and that which pip builds of its source; hatchling must be
installed. How far weights compress depends on their distribution: those of a trained model differ
by a percent.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder, pretrained
from elmore.weights.bundle import Bundle
from elmore.weights.packaging import package_model
from elmore.weights.storage import Storage


def save_random_model(path: Path, storage: Storage) -> None:
    """Save the original network and a full softmax over the words of the bundled model."""
    torch.manual_seed(0)
    vocabulary = pretrained.load().vocabulary
    assert vocabulary is not None
    model = BiLM(BiLMConfig())
    softmax = Softmax(SoftmaxConfig(), len(vocabulary), model.config.lstm.output_dim)
    with torch.no_grad():
        for weight in (*model.parameters(), *softmax.parameters()):
            weight.normal_()
    bundle = Bundle(model, ByteAlphabet(), vocabulary, softmax=softmax)
    folder.save(bundle, path, storage=storage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", default="int6", choices=["float32", "float16", "int8", "int6"])
    storage = parser.parse_args().storage
    with tempfile.TemporaryDirectory() as tmp:
        model = Path(tmp) / "random"
        save_random_model(model, storage)
        sizes = {path.name: path.stat().st_size for path in sorted(model.glob("*.safetensors"))}
        wheel = package_model(model, Path(tmp))
        sizes["wheel of elmore models package"] = wheel.stat().st_size
        source = package_model(model, Path(tmp) / "sources", as_source=True)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "-w", f"{tmp}/built", str(source)], check=True)
        (built,) = (Path(tmp) / "built").iterdir()
        sizes["wheel that pip builds of the source"] = built.stat().st_size
    for name, size in sizes.items():
        print(f"{name:36} {size / 1e6:6.1f} MB")


if __name__ == "__main__":
    main()
