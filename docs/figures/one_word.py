"""Draw docs/figures/one_word.svg: one word in many sentences, layer by layer.

    python docs/figures/one_word.py docs/figures/one_word.svg

Every dot is the word "play" in one sentence, embedded by the bundled model. A panel shows the unit
vectors of one layer, projected on their first two principal components; all panels have the same
scale. The senses only colour the dots.
"""

import argparse
from pathlib import Path

import numpy as np

import elmore
from elmore.probe.drawing import files
from elmore.probe.drawing.canvas import SERIES, SHAPES, Canvas, Marker, Polyline, Text

WORD = "play"
SENSES = {
    "on a stage": [
        "The play was performed in London .",
        "Shakespeare wrote the play in 1599 .",
        "We saw a play at the old theatre .",
        "Her first play opened on Broadway .",
        "The critics praised the play and its author .",
        "He directed a play about the war .",
        "The second act of the play is too long .",
        "It is a play in three acts .",
    ],
    "a game": [
        "They play football for the national team .",
        "We play chess every Sunday .",
        "She will play tennis against the champion .",
        "He used to play for the Boston Celtics .",
        "Eleven men play on each side .",
        "Both teams play in the first division .",
        "You can play cards after dinner .",
        "They play their home games in Chicago .",
    ],
    "an instrument": [
        "He learned to play the piano at six .",
        "She can play the violin very well .",
        "They play the guitar and the drums .",
        "I heard him play the organ in church .",
        "Who will play the flute tonight ?",
        "The boy began to play his trumpet .",
        "We play the cello in the same orchestra .",
        "My sister and I play the harp .",
    ],
    "a part": [
        "Banks play a role in the economy .",
        "Genes play an important part in the disease .",
        "The court will play a part in the decision .",
        "Women play a central role in this society .",
        "Forests play a major role in the climate .",
        "Chance must play some part in it .",
        "Teachers play a key role in the lives of children .",
        "The army did not play any role in the election .",
    ],
}
LAYERS = ["layer 0: its letters", "layer 1", "layer 2"]
PANEL, GAP, EDGE, TOP = 212, 12, 8, 60


def vectors() -> np.ndarray:
    """Return the vectors of the word in every sentence: (layers, occurrences, width)."""
    sentences = [sentence.split() for sense in SENSES.values() for sentence in sense]
    result = elmore.load(device="cpu").embed(sentences, layers="all")
    uses = np.stack([one.vectors[:, one.tokens.index(WORD)] for one in result], axis=1)
    return uses / np.linalg.norm(uses, axis=2, keepdims=True)


def plane(uses: np.ndarray) -> np.ndarray:
    """Project one layer onto its two main directions: (occurrences, 2)."""
    centred = uses - uses.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    turned = directions * np.sign(directions.sum(axis=1, keepdims=True))  # either sign is right
    return centred @ turned.T


def draw(uses: np.ndarray) -> Canvas:
    """Lay the panels side by side, and the senses below."""
    number = sum(map(len, SENSES.values()))
    width = 2 * EDGE + len(LAYERS) * (PANEL + GAP) - GAP
    canvas = Canvas(width, TOP + PANEL + 40, f"“{WORD}” in {number} sentences, layer by layer")
    canvas.add(Text(EDGE, 24, canvas.title, size=17, bold=True))
    maps = [plane(layer) for layer in uses]
    scale = 0.44 * PANEL / max(np.abs(points).max() for points in maps)
    for panel, (name, points) in enumerate(zip(LAYERS, maps, strict=True)):
        left = EDGE + panel * (PANEL + GAP)
        corners = [(0, 0), (PANEL, 0), (PANEL, PANEL), (0, PANEL), (0, 0)]
        canvas.add(Polyline([(left + x, TOP + y) for x, y in corners], "grid"))
        canvas.add(Text(left, TOP - 8, name, "muted", 15))
        rest = iter(points)
        for look, (sense, sentences) in enumerate(SENSES.items()):
            for sentence, (x, y) in zip(sentences, rest, strict=False):
                point = left + PANEL / 2 + scale * x, TOP + PANEL / 2 - scale * y
                role, shape = SERIES[look], SHAPES[look]
                canvas.add(Marker(*point, role, shape, 5.5, sentence, sense, 0.85))
    for look, sense in enumerate(SENSES):
        x, y = EDGE + 6 + look * 160, TOP + PANEL + 27
        canvas.add(
            Marker(x, y - 5, SERIES[look], SHAPES[look], 5.5), Text(x + 14, y, sense, size=15)
        )
    return canvas


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    files.save(draw(vectors()), args.out)


if __name__ == "__main__":
    main()
