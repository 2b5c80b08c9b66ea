"""The senses of each lemma in WordNet, the most frequent first.

They are read from the file `index.sense` of the WordNet database (senseidx(5WN)), one per line:

    sense_key  synset_offset  sense_number  tag_cnt

where a sense key is `lemma%type:file:...`: the type is the part of speech, the file the topic
(lexnames(5WN)).
"""

from pathlib import Path

from elmore.errors import DataError
from elmore.text.files import numbered_lines

POS = ("NOUN", "VERB", "ADJ", "ADV")
_POS_OF_TYPE = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # 5: satellite
_ABBREVIATIONS = {"1": "noun", "2": "verb", "3": "adj.", "4": "adv.", "5": "adj."}
_TABLE = """
    adjective|adjective, of|adverb|tops|act|animal|artifact|attribute|body|cognition
    communication|event|feeling|food|group|location|motive|object|person|phenomenon
    plant|possession|process|quantity|relation|shape|state|substance|time
    body|change|cognition|communication|competition|consumption|contact|creation|emotion|motion
    perception|possession|social|stative|weather|participle
"""
TOPICS = tuple(
    name.strip() for line in _TABLE.split("\n") for name in line.split("|") if name.strip()
)


class WordNet:
    """The senses of each lemma and part of speech, in WordNet's order."""

    def __init__(self, senses: dict[tuple[str, str], tuple[str, ...]]) -> None:
        self._senses = senses

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Return the sense keys of a lemma; none if WordNet does not have it."""
        return self._senses.get((lemma, pos), ())

    def first_sense(self, lemma: str, pos: str) -> str | None:
        """Return the most frequent sense according to WordNet."""
        return next(iter(self.senses(lemma, pos)), None)


def read_wordnet(folder: str | Path) -> WordNet:
    """Read index.sense, compressed or not, of a WordNet folder (the one called `dict`)."""
    path = _find_index(Path(folder))
    ranked: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for where, text in numbered_lines(path):
        try:
            key, _, number, _ = text.split()
            lemma, rest = key.split("%")
            lemma_pos = (lemma, _POS_OF_TYPE[rest.partition(":")[0]])
            ranked.setdefault(lemma_pos, []).append((int(number), key))
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{where}: expected a sense key and three numbers, found {text[:60]!r}"
            ) from error
    if not ranked:
        raise DataError(f"{path}: holds no senses; is it WordNet's index.sense?")
    return WordNet(
        {lemma: tuple(key for _, key in sorted(senses)) for lemma, senses in ranked.items()}
    )


def _find_index(folder: Path) -> Path:
    for name in ("index.sense", "index.sense.xz", "index.sense.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} holds no index.sense; pass the folder of WordNet 3.0's database")


def describe_sense(key: str) -> str:
    """Describe a sense key by part of speech and topic: `head%1:08:00::` is a "noun body"."""
    kind, *numbers = key.partition("%")[2].split(":")
    if kind not in _ABBREVIATIONS or not numbers or not numbers[0].isdecimal():
        return key
    file = int(numbers[0])
    topic = f" {TOPICS[file]}" if kind in "12" and file < len(TOPICS) else ""
    return f"{_ABBREVIATIONS[kind]}{topic} ({key.rstrip(':')})"
