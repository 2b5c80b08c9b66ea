"""Compute vectors with numpy and onnxruntime only: no torch, no elmore.

elmore export english english.onnx
python examples/onnx_without_torch.py english.onnx "I left it at the bank ." "So it goes ."
"""

import json
import sys

import numpy as np
import onnxruntime


def embed(session, sentences):
    """Return all layers of tokenized sentences: (layers, sentences, tokens, width)."""
    alphabet = json.loads(session.get_modelmeta().custom_metadata_map["elmore"])["alphabet"]
    assert alphabet["kind"] == "bytes", "this example supports only models that read bytes"

    def encode(word):
        mark = alphabet["marks"].get(word)
        letters = word.encode("utf-8", "ignore")[: alphabet["max_characters"] - 2]
        letters = list(letters) if mark is None else [mark]
        return [alphabet["begin_word"], *letters, alphabet["end_word"]]

    words = sorted({word for sentence in sentences for word in sentence})
    encoded = [encode(word) for word in words]
    characters = np.full((len(words), max(map(len, encoded), default=0)), alphabet["padding"])
    for row, letters in zip(characters, encoded, strict=True):
        row[: len(letters)] = letters
    index = np.full((len(sentences), max(map(len, sentences), default=0)), -1)
    for row, sentence in zip(index, sentences, strict=True):
        row[: len(sentence)] = [words.index(word) for word in sentence]
    feed = {"index": index.astype(np.int64), "characters": characters.astype(np.int64)}
    return session.run(["layers"], feed)[0]


if __name__ == "__main__":
    texts = [text.split() for text in sys.argv[2:]]
    layers = embed(onnxruntime.InferenceSession(sys.argv[1]), texts)
    for number, tokens in enumerate(texts):
        vectors = layers[:, number, : len(tokens)].mean(axis=0)  # the average of the layers
        for word, vector in zip(tokens, vectors, strict=True):
            print(word, vector[:4].round(4))
