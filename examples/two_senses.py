"""Show that one word has different vectors for its two senses.

    python examples/two_senses.py [WORD SENTENCE...]

Without arguments it shows a few words in four sentences each: two of one sense, two of another.
"""

import sys

import numpy as np

import elmore

USES = {
    "rose": [
        "She gave him a red rose .",
        "He picked a white rose from the garden .",
        "The price rose to five dollars .",
        "The temperature rose by two degrees .",
    ],
    "left": [
        "She turned left at the corner .",
        "They drove left into the narrow street .",
        "He left the house at noon .",
        "They left the city in 1945 .",
    ],
    "play": [
        "The play was performed in London .",
        "Shakespeare wrote the play in 1599 .",
        "The children play in the garden every day .",
        "They play football for the national team .",
    ],
    "match": [
        "He lit a match and held it to the candle .",
        "She struck a match in the dark room .",
        "They lost the match against Italy .",
        "The team won the match against Spain .",
    ],
}
SHADES = " ░▒▓█"


def embed_uses(elmo: elmore.Embedder, word: str, sentences: list[str]) -> np.ndarray:
    """Return the unit vector of the word in each sentence."""
    embedded = elmo.embed(sentences, layers="top")
    vectors = np.stack([text.vectors[text.tokens.index(word)] for text in embedded])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def show(elmo: elmore.Embedder, word: str, sentences: list[str]) -> None:
    vectors = embed_uses(elmo, word, sentences)
    similarity = vectors @ vectors.T
    others = similarity[~np.eye(len(vectors), dtype=bool)]
    low, high = others.min(), others.max()
    print(f"\n  {word.upper()}")
    for number, (sentence, row) in enumerate(zip(sentences, similarity, strict=True)):
        cells = "".join(
            "    ·  " if other == number else f"  {value:.2f}{shade(value, low, high)}"
            for other, value in enumerate(row)
        )
        print(f"  {number + 1}  {sentence:52}{cells}")
    nearest = (similarity - 2 * np.eye(len(vectors))).argmax(axis=1)
    pairs = ", ".join(f"{a + 1} → {b + 1}" for a, b in enumerate(nearest))
    print(f"     nearest use of each: {pairs}")


def shade(value: float, low: float, high: float) -> str:
    return SHADES[int(4.999 * (value - low) / max(high - low, 1e-9))]


def main() -> None:
    elmo = elmore.load()
    print("How similar are the uses of a word? Cosine of its vectors (top layer):")
    if len(sys.argv) > 2:
        show(elmo, sys.argv[1], sys.argv[2:])
        return
    for word, sentences in USES.items():
        show(elmo, word, sentences)
    print("\n  Try your own:  .venv/bin/python examples/two_senses.py WORD 'a sentence' 'another'")


if __name__ == "__main__":
    main()
