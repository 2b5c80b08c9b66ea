"""Compute vectors with numpy and onnxruntime only: no torch, no elmore.

elmore export english english.onnx
python examples/onnx_without_torch.py english.onnx "I left it at the bank ." "So it goes ."
"""

import json
import sys

import numpy as np
import onnxruntime


def embed(session, sentences):
    """Give every layer of tokenised sentences: (layers, sentences, tokens, width)."""
    facts = json.loads(session.get_modelmeta().custom_metadata_map["elmore"])["alphabet"]
    assert facts["kind"] == "bytes", "this model spells words in another way than by bytes"

    def spell(word):
        mark = facts["marks"].get(word)
        letters = word.encode("utf-8", "ignore")[: facts["max_characters"] - 2]
        letters = list(letters) if mark is None else [mark]
        return [facts["begin_word"], *letters, facts["end_word"]]

    words = sorted({word for sentence in sentences for word in sentence})
    spelled = [spell(word) for word in words]
    characters = np.full((len(words), max(map(len, spelled), default=0)), facts["padding"])
    for row, letters in zip(characters, spelled, strict=True):
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
