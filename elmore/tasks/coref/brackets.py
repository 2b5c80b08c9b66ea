"""Mentions as brackets around tokens: `(7` opens one of entity 7, `7)` closes it, `(7)` is both.

Brackets are matched by entity, so that those of two may cross. Of one entity the last that was
opened is closed first; two of its mentions that cross cannot be written so, and are refused.
"""

import logging
from typing import Literal, NamedTuple

from elmore.errors import DataError
from elmore.tasks.coref.document import Bracketed, Cluster, Document, Mention

Unbalanced = Literal["refuse", "drop"]

_log = logging.getLogger(__name__)


class _Opened(NamedTuple):
    number: int
    entity: str
    start: int
    where: str


class Brackets:
    """The mentions of one sentence, while its brackets come in.

    A bracket without its other half is refused, or left out with a warning.
    """

    def __init__(self, unbalanced: Unbalanced = "refuse") -> None:
        self._unbalanced = unbalanced
        self._open: dict[str, list[_Opened]] = {}
        self._found: list[tuple[int, Bracketed]] = []
        self._count = 0

    def open(self, entity: str, start: int, where: str) -> None:
        """Take an opening bracket before token `start`."""
        opened = _Opened(self._count, entity, start, where)
        self._open.setdefault(entity, []).append(opened)
        self._count += 1

    def close(self, entity: str, end: int, where: str) -> None:
        """Take a closing bracket behind token `end - 1`."""
        if not self._open.get(entity):
            self._complain(
                f"{where}: '{entity})' closes a mention that is not open; expected '({entity}' "
                "before it in the sentence"
            )
            return
        number, _, start, opened = self._open[entity].pop()
        if start < end:  # not of a node that nobody wrote
            self._found.append((number, Bracketed(entity, start, end, opened)))

    def mentions(self) -> list[Bracketed]:
        """Give the mentions of a sentence that has ended, as they were opened."""
        for opened in self._open.values():
            for _, entity, _, where in opened:
                self._complain(
                    f"{where}: '({entity}' is still open at the end of the sentence; expected "
                    f"'{entity})' on a later line"
                )
        return [mention for _, mention in sorted(self._found)]

    def _complain(self, message: str) -> None:
        if self._unbalanced == "refuse":
            raise DataError(message)
        _log.warning("%s; it is left out", message)


class Marks(NamedTuple):
    """The brackets at a token, as entities: numbers from 1, in the order of the clusters."""

    closing: list[int]
    opening: list[int]
    alone: list[int]
    """Of mentions of this one token."""

    def written(self) -> list[str]:
        """Give them as they stand in a file."""
        return [
            *(f"{entity})" for entity in self.closing),
            *(f"({entity}" for entity in self.opening),
            *(f"({entity})" for entity in self.alone),
        ]


def marks(document: Document) -> list[list[Marks]]:
    """Give the brackets of a document, for each token of each sentence."""
    found = [[Marks([], [], []) for _ in sentence] for sentence in document.sentences]
    spans = []
    for entity, cluster in enumerate(document.clusters, start=1):
        _refuse_crossing(cluster, document)
        spans += [(mention, entity) for mention in cluster]
    # the longer first, so that brackets which open at one place nest
    for (sentence, start, end), entity in sorted(spans, key=lambda span: _widest(span[0])):
        row = found[sentence]
        if end - start == 1:
            row[start].alone.append(entity)
        else:
            row[start].opening.append(entity)
            row[end - 1].closing.insert(0, entity)
    return found


def _widest(mention: Mention) -> tuple[int, int, int]:
    return mention.sentence, mention.start, -mention.end


def _refuse_crossing(cluster: Cluster, document: Document) -> None:
    around: list[Mention] = []  # those that the next may lie in, the innermost last
    for mention in sorted(cluster, key=_widest):
        while around and (
            around[-1].sentence != mention.sentence or around[-1].end <= mention.start
        ):
            around.pop()
        if around and around[-1].end < mention.end:
            tokens = document.sentences[mention.sentence]
            words = [" ".join(tokens[m.start : m.end])[:40] for m in (around[-1], mention)]
            raise DataError(
                f"{document.name}: {words[0]!r} and {words[1]!r} in sentence {mention.sentence} "
                "(from 0) are one entity and cross; brackets can only say it of different ones"
            )
        around.append(mention)
