"""Mentions as brackets around tokens: `(7` opens one of entity 7, `7)` closes it, `(7)` is both.

Brackets are matched by entity, so that those of two may cross. Of one entity the last that was
opened is closed first, so two of its mentions that cross cannot be written; but in the brackets of
a mention in pieces, which have their own numbers, a file may say so (`document` refuses them).
"""

import logging
from typing import Literal, NamedTuple

from elmore.errors import DataError
from elmore.tasks.coref.document import Bracketed, Cluster, Document, by_start_then_length, crossing

Unbalanced = Literal["refuse", "drop"]

_log = logging.getLogger(__name__)


class _Opened(NamedTuple):
    number: int
    entity: str
    pieces: str
    start: int
    where: str


class Brackets:
    """The mentions of one sentence, while its brackets come in.

    A bracket without its other half is refused, or left out with a warning. Of a mention in pieces,
    what opens the first and what closes the last belong together; `pieces` says how many there are.
    """

    def __init__(self, unbalanced: Unbalanced = "refuse") -> None:
        self._unbalanced = unbalanced
        self._open: dict[tuple[str, str], list[_Opened]] = {}
        self._found: list[tuple[int, Bracketed]] = []
        self._count = 0

    def open(self, entity: str, start: int, where: str, pieces: str = "1") -> None:
        """Take an opening bracket before token `start`."""
        opened = _Opened(self._count, entity, pieces, start, where)
        self._open.setdefault((entity, pieces), []).append(opened)
        self._count += 1

    def close(self, entity: str, end: int, where: str, pieces: str = "1") -> None:
        """Take a closing bracket behind token `end - 1`."""
        if not self._open.get((entity, pieces)):
            opening, closing = _pair(entity, pieces)
            self._complain(
                f"{where}: {closing!r} closes a mention that is not open; expected {opening!r} "
                "before it in the sentence"
            )
            return
        number, _, _, start, opened = self._open[entity, pieces].pop()
        if start < end:  # not of a node that nobody wrote
            self._found.append((number, Bracketed(entity, start, end, opened)))

    def mentions(self) -> list[Bracketed]:
        """Return the mentions of a sentence that has ended, as they were opened."""
        for opened in self._open.values():
            for _, entity, pieces, _, where in opened:
                opening, closing = _pair(entity, pieces)
                self._complain(
                    f"{where}: {opening!r} is still open at the end of the sentence; expected "
                    f"{closing!r} on a later line"
                )
        return [mention for _, mention in sorted(self._found)]

    def _complain(self, message: str) -> None:
        if self._unbalanced == "refuse":
            raise DataError(message)
        _log.warning("%s; it is left out", message)


def _pair(entity: str, pieces: str) -> tuple[str, str]:
    """Return the two brackets of a mention as a file has them."""
    if pieces == "1":
        return f"({entity}", f"{entity})"
    return f"({entity}[1/{pieces}]", f"{entity}[{pieces}/{pieces}])"


class Marks(NamedTuple):
    """The brackets at a token, as entities: numbers from 1, in the order of the clusters."""

    closing: list[int]
    opening: list[int]
    alone: list[int]
    """Of mentions of this one token."""

    def written(self) -> list[str]:
        """Return them as they stand in a file."""
        return [
            *(f"{entity})" for entity in self.closing),
            *(f"({entity}" for entity in self.opening),
            *(f"({entity})" for entity in self.alone),
        ]


def marks(document: Document) -> list[list[Marks]]:
    """Return the brackets of a document, for each token of each sentence."""
    found = [[Marks([], [], []) for _ in sentence] for sentence in document.sentences]
    spans = []
    for entity, cluster in enumerate(document.clusters, start=1):
        _refuse_crossing(cluster, document)
        spans += [(mention, entity) for mention in cluster]
    # the longer first, so that brackets which open at one place nest
    for (sentence, start, end), entity in sorted(
        spans, key=lambda span: by_start_then_length(span[0])
    ):
        row = found[sentence]
        if end - start == 1:
            row[start].alone.append(entity)
        else:
            row[start].opening.append(entity)
            row[end - 1].closing.insert(0, entity)
    return found


def _refuse_crossing(cluster: Cluster, document: Document) -> None:
    pair = crossing(cluster)
    if pair:
        tokens = document.sentences[pair[0].sentence]
        words = [" ".join(tokens[mention.start : mention.end])[:40] for mention in pair]
        raise DataError(
            f"{document.name}: {words[0]!r} and {words[1]!r} in sentence {pair[0].sentence} "
            "(from 0) are one entity and cross; brackets can only say it of different ones"
        )
