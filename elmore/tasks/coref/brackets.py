"""Mentions as brackets around tokens: `(7` opens one of entity 7, `7)` closes it, `(7)` is both.

Brackets are matched by entity, so mentions of two entities may cross. Of one entity, the last that
was opened is closed first, so two crossing mentions of it cannot be written, except as
discontinuous mentions, whose parts are numbered (`document` refuses these).
"""

import logging
from typing import Literal, NamedTuple

from elmore.errors import DataError
from elmore.tasks.coref.document import (
    Bracketed,
    Cluster,
    Document,
    by_start_then_length,
    find_crossing,
)

Unbalanced = Literal["error", "skip"]

_log = logging.getLogger(__name__)


class _OpenBracket(NamedTuple):
    number: int
    entity: str
    pieces: str
    start: int
    where: str


class Brackets:
    """Collects the mentions of a sentence from its brackets.

    A bracket without its counterpart is an error, or skipped with a warning. A discontinuous
    mention goes from the start of its first part to the end of its last; `pieces` is their number.
    """

    def __init__(self, unbalanced: Unbalanced = "error") -> None:
        self._unbalanced = unbalanced
        self._open: dict[tuple[str, str], list[_OpenBracket]] = {}
        self._found: list[tuple[int, Bracketed]] = []
        self._count = 0

    def open(self, entity: str, start: int, where: str, pieces: str = "1") -> None:
        """Add an opening bracket before token `start`."""
        bracket = _OpenBracket(self._count, entity, pieces, start, where)
        self._open.setdefault((entity, pieces), []).append(bracket)
        self._count += 1

    def close(self, entity: str, end: int, where: str, pieces: str = "1") -> None:
        """Add a closing bracket after token `end - 1`."""
        if not self._open.get((entity, pieces)):
            opening, closing = _pair(entity, pieces)
            self._report(
                f"{where}: {closing!r} closes a mention that is not open; expected {opening!r} "
                "before it in the sentence"
            )
            return
        number, _, _, start, opened_at = self._open[entity, pieces].pop()
        if start < end:  # not of an empty node
            self._found.append((number, Bracketed(entity, start, end, opened_at)))

    def mentions(self) -> list[Bracketed]:
        """Return the mentions at the end of a sentence, in the order of their opening brackets."""
        for brackets in self._open.values():
            for _, entity, pieces, _, where in brackets:
                opening, closing = _pair(entity, pieces)
                self._report(
                    f"{where}: {opening!r} is still open at the end of the sentence; expected "
                    f"{closing!r} on a later line"
                )
        return [mention for _, mention in sorted(self._found)]

    def _report(self, message: str) -> None:
        if self._unbalanced == "error":
            raise DataError(message)
        _log.warning("%s; it is skipped", message)


def _pair(entity: str, pieces: str) -> tuple[str, str]:
    """Return the two brackets of a mention as they are written."""
    if pieces == "1":
        return f"({entity}", f"{entity})"
    return f"({entity}[1/{pieces}]", f"{entity}[{pieces}/{pieces}])"


class Marks(NamedTuple):
    """The brackets at a token, as entities: numbers from 1, in the order of the clusters."""

    closing: list[int]
    opening: list[int]
    alone: list[int]
    """Entities of mentions of this one token."""

    def to_list(self) -> list[str]:
        """Return the brackets as they are written."""
        return [
            *(f"{entity})" for entity in self.closing),
            *(f"({entity}" for entity in self.opening),
            *(f"({entity})" for entity in self.alone),
        ]


def marks(document: Document) -> list[list[Marks]]:
    """Return the brackets of a document, for each token of each sentence."""
    rows = [[Marks([], [], []) for _ in sentence] for sentence in document.sentences]
    spans = []
    for entity, cluster in enumerate(document.clusters, start=1):
        _refuse_crossing(cluster, document)
        spans += [(mention, entity) for mention in cluster]
    # longer mentions first, so that brackets that open at the same token nest
    for (sentence, start, end), entity in sorted(
        spans, key=lambda span: by_start_then_length(span[0])
    ):
        row = rows[sentence]
        if end - start == 1:
            row[start].alone.append(entity)
        else:
            row[start].opening.append(entity)
            row[end - 1].closing.insert(0, entity)
    return rows


def _refuse_crossing(cluster: Cluster, document: Document) -> None:
    pair = find_crossing(cluster)
    if pair:
        tokens = document.sentences[pair[0].sentence]
        words = [" ".join(tokens[mention.start : mention.end])[:40] for mention in pair]
        raise DataError(
            f"{document.name}: {words[0]!r} and {words[1]!r} in sentence {pair[0].sentence} "
            "(from 0) are one entity and cross; brackets can only say it of different ones"
        )
