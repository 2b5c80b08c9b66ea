"""WordNet's own index: which senses a lemma has, the most frequent first.

Read from the file `index.sense` of the WordNet database (senseidx(5WN)), one sense a line:

    sense_key  synset_offset  sense_number  tag_cnt

where a sense key is `lemma%type:...` and the type names the part of speech.
"""

from pathlib import Path

from elmore.errors import DataError
from elmore.text.files import numbered_lines

POS = ("NOUN", "VERB", "ADJ", "ADV")
_POS_OF_TYPE = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # 5: a satellite


class WordNet:
    """The senses of each lemma and part of speech, in WordNet's order."""

    def __init__(self, senses: dict[tuple[str, str], tuple[str, ...]]) -> None:
        self._senses = senses

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Give the sense keys of a lemma; none if WordNet does not know it."""
        return self._senses.get((lemma, pos), ())

    def first(self, lemma: str, pos: str) -> str | None:
        """Give the most frequent sense, as WordNet counts it."""
        return next(iter(self.senses(lemma, pos)), None)


def read(folder: str | Path) -> WordNet:
    """Read the index of a WordNet folder (the one called `dict`), packed or not."""
    path = _index(Path(folder))
    ranked: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for place, text in numbered_lines(path):
        try:
            key, _, number, _ = text.split()
            lemma, rest = key.split("%")
            named = (lemma, _POS_OF_TYPE[rest.partition(":")[0]])
            ranked.setdefault(named, []).append((int(number), key))
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{place}: expected a sense key and three numbers, found {text[:60]!r}"
            ) from error
    if not ranked:
        raise DataError(f"{path}: holds no senses; is it WordNet's index.sense?")
    return WordNet(
        {named: tuple(key for _, key in sorted(found)) for named, found in ranked.items()}
    )


def _index(folder: Path) -> Path:
    for name in ("index.sense", "index.sense.xz", "index.sense.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} holds no index.sense; pass the folder of WordNet 3.0's database")
