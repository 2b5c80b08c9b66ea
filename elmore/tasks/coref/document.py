"""A text and what its phrases refer to."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elmore.errors import DataError

_log = logging.getLogger(__name__)


class Mention(NamedTuple):
    """A stretch of a sentence."""

    sentence: int
    start: int
    end: int
    """The token after its last."""


Cluster = list[Mention]
"""The mentions of one thing, in the order of the text."""


@dataclass(frozen=True)
class Document:
    """Sentences, and the clusters of mentions in them. No mention is in two clusters."""

    sentences: list[list[str]]
    speakers: list[str]
    """Of each sentence; empty where nobody knows."""
    clusters: list[Cluster]
    """In the order of their first mentions."""
    name: str = ""
    part: int = 0
    """Files of CoNLL-2012 divide long documents."""


def by_start_then_length(mention: Mention) -> tuple[int, int, int]:
    """Sort mentions by their place, the longer first of those that start at one."""
    return mention.sentence, mention.start, -mention.end


def crossing(mentions: Iterable[Mention]) -> tuple[Mention, Mention] | None:
    """Return two that overlap, neither inside the other, if there are any."""
    around: list[Mention] = []  # those that the next may lie in, the innermost last
    for mention in sorted(mentions, key=by_start_then_length):
        while around and (
            around[-1].sentence != mention.sentence or around[-1].end <= mention.start
        ):
            around.pop()
        if around and around[-1].end < mention.end:
            return around[-1], mention
        around.append(mention)
    return None


def ordered(clusters: Iterable[Iterable[Sequence[int]]]) -> list[Cluster]:
    """Return clusters, and the mentions in each, in the order of the text."""
    return sorted(sorted(Mention(*mention) for mention in cluster) for cluster in clusters)


def drop_singletons(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Leave out what is mentioned once, as OntoNotes does: it corefers with nothing."""
    return [cluster for cluster in clusters if len(cluster) > 1]


Block = list[tuple[str, str]]
"""Lines of a file up to a blank one, each with its place for messages."""


class Bracketed(NamedTuple):
    """A mention as a file has it."""

    entity: str
    start: int
    end: int
    where: str
    """The line that opens it."""


class Assembly:
    """A document whose sentences come in one after another."""

    def __init__(self, where: str, name: str, part: int = 0) -> None:
        self.where, self.name, self.part = where, name, part
        self._sentences: list[list[str]] = []
        self._speakers: list[str] = []
        self._entities: dict[str, Cluster] = {}
        self._owner: dict[Mention, str] = {}

    def add(self, tokens: list[str], speaker: str, mentions: Iterable[Bracketed]) -> None:
        """Add a sentence.

        Of a stretch that is said to be two things, the one whose bracket opens first counts: a
        model, and every score, gives it one cluster.
        """
        by_entity: dict[str, dict[Mention, str]] = {}
        for entity, start, end, where in mentions:
            mention = Mention(len(self._sentences), start, end)
            owner = self._owner.setdefault(mention, entity)
            cluster = self._entities.setdefault(entity, [])
            if owner != entity:
                _log.warning(
                    "%s: %r is marked as %s and as %s; the first counts",
                    where,
                    " ".join(tokens[start:end])[:40],
                    owner,
                    entity,
                )
                continue
            by_entity.setdefault(entity, {})[mention] = where
            if mention not in cluster:
                cluster.append(mention)
        _look_for_crossings(tokens, by_entity)
        self._sentences.append(tokens)
        self._speakers.append(speaker)

    def document(self) -> Document:
        """Return the whole."""
        if not self._sentences:
            raise DataError(f"{self.where}: document {self.name!r} is empty; expected sentences")
        clusters = ordered(filter(None, self._entities.values()))
        return Document(self._sentences, self._speakers, clusters, self.name, self.part)


def _look_for_crossings(tokens: list[str], by_entity: dict[str, dict[Mention, str]]) -> None:
    """Refuse mentions of one entity that cross, and warn of others that do.

    Those of different ones are true now and then (OntoGUM has four such pairs); of one, they are a
    slip, and could not be written again.
    """
    for places in by_entity.values():
        pair = crossing(places)
        if pair:
            raise DataError(
                f"{_told(pair, places, tokens)}, and both are one entity; expected its mentions "
                "inside one another or apart"
            )
    places = {mention: where for found in by_entity.values() for mention, where in found.items()}
    pair = crossing(places)
    if pair:
        _log.warning(
            "%s; expected mentions inside one another or apart; both are kept, but none that cross "
            "are predicted",
            _told(pair, places, tokens),
        )


def _told(pair: tuple[Mention, Mention], places: dict[Mention, str], tokens: list[str]) -> str:
    first, second = (" ".join(tokens[mention.start : mention.end])[:40] for mention in pair)
    return f"{places[pair[1]]}: {second!r} crosses {first!r}, which {places[pair[0]]} opens"
