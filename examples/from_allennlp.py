"""Run code written for AllenNLP with one line changed: the import.

    python examples/from_allennlp.py

Pass your own options.json and weights.hdf5; this script uses those of the bundled English model.
"""

import tempfile
from pathlib import Path

from elmore.integrations.allennlp import Elmo, batch_to_ids  # was: allennlp.modules.elmo
from elmore.weights import pretrained
from elmore.weights.convert import bilm_tf


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        bilm_tf.write_bilm_tf(pretrained.load(), Path(place) / "model")
        options_file, weight_file = f"{place}/model/options.json", f"{place}/model/weights.hdf5"

        # From here on, nothing knows that AllenNLP is gone.
        elmo = Elmo(options_file, weight_file, num_output_representations=2, dropout=0)

    sentences = [["First", "sentence", "."], ["Another", "."]]
    character_ids = batch_to_ids(sentences)
    embeddings = elmo(character_ids)

    print("ids            ", tuple(character_ids.shape))
    for vectors in embeddings["elmo_representations"]:
        print("representation ", tuple(vectors.shape))
    print("mask           ", embeddings["mask"].int().tolist())


if __name__ == "__main__":
    main()
