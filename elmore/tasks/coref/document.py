"""Documents, mentions and clusters."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from elmore.errors import DataError

_log = logging.getLogger(__name__)


class Mention(NamedTuple):
    """A span of a sentence."""

    sentence: int
    start: int
    end: int
    """The token after the last."""


Cluster = list[Mention]
"""The mentions of one entity, in the order of the text."""


@dataclass(frozen=True)
class Document:
    """Sentences and clusters of mentions; no mention is in two clusters."""

    sentences: list[list[str]]
    speakers: list[str]
    """Speaker of each sentence; empty if unknown."""
    clusters: list[Cluster]
    """In the order of their first mentions."""
    name: str = ""
    part: int = 0
    """Number of the part of a document that CoNLL-2012 divides."""
    genre: str = field(default="", repr=False)  # the hash of an earlier run is without it
    """Such as `bn` (broadcast news) in OntoNotes; empty if unknown."""


def by_start_then_length(mention: Mention) -> tuple[int, int, int]:
    """Return a sort key: by first token, longer mentions first."""
    return mention.sentence, mention.start, -mention.end


def find_crossing(mentions: Iterable[Mention]) -> tuple[Mention, Mention] | None:
    """Return two mentions that overlap without one containing the other, if any."""
    enclosing: list[Mention] = []  # mentions that may contain the next one, the innermost last
    for mention in sorted(mentions, key=by_start_then_length):
        while enclosing and (
            enclosing[-1].sentence != mention.sentence or enclosing[-1].end <= mention.start
        ):
            enclosing.pop()
        if enclosing and enclosing[-1].end < mention.end:
            return enclosing[-1], mention
        enclosing.append(mention)
    return None


def sort_clusters(clusters: Iterable[Iterable[Sequence[int]]]) -> list[Cluster]:
    """Sort clusters, and the mentions in each, by their order in the text."""
    return sorted(sorted(Mention(*mention) for mention in cluster) for cluster in clusters)


def drop_singletons(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Drop clusters of one mention, which OntoNotes does not annotate."""
    return [cluster for cluster in clusters if len(cluster) > 1]


Block = list[tuple[str, str]]
"""Lines of a file up to a blank one, each with its position for messages."""


class Bracketed(NamedTuple):
    """A mention as a file marks it."""

    entity: str
    start: int
    end: int
    where: str
    """Position of its opening bracket."""


class DocumentBuilder:
    """Builds a document from its sentences."""

    def __init__(self, where: str, name: str, part: int = 0) -> None:
        self.where, self.name, self.part, self.genre = where, name, part, ""
        self._sentences: list[list[str]] = []
        self._speakers: list[str] = []
        self._entities: dict[str, Cluster] = {}
        self._owner: dict[Mention, str] = {}

    def add(self, tokens: list[str], speaker: str, mentions: Iterable[Bracketed]) -> None:
        """Add a sentence.

        If a span is marked as two entities, the one whose bracket opens first counts, because a
        mention has one cluster in models and metrics.
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
        _check_crossings(tokens, by_entity)
        self._sentences.append(tokens)
        self._speakers.append(speaker)

    def document(self) -> Document:
        """Return the document."""
        if not self._sentences:
            raise DataError(f"{self.where}: document {self.name!r} is empty; expected sentences")
        clusters = sort_clusters(filter(None, self._entities.values()))
        return Document(self._sentences, self._speakers, clusters, self.name, self.part, self.genre)


def _check_crossings(tokens: list[str], by_entity: dict[str, dict[Mention, str]]) -> None:
    """Refuse crossing mentions of one entity, and warn of others.

    Mentions of different entities do cross now and then (OntoGUM has four such pairs); of one
    entity, it is an annotation error and could not be written again.
    """
    for locations in by_entity.values():
        pair = find_crossing(locations)
        if pair:
            raise DataError(
                f"{_describe_crossing(pair, locations, tokens)}, and both are one entity; expected "
                "its mentions inside one another or apart"
            )
    locations = {
        mention: where for mentions in by_entity.values() for mention, where in mentions.items()
    }
    pair = find_crossing(locations)
    if pair:
        _log.warning(
            "%s; expected mentions inside one another or apart; both are kept, but none that cross "
            "are predicted",
            _describe_crossing(pair, locations, tokens),
        )


def _describe_crossing(
    pair: tuple[Mention, Mention], locations: dict[Mention, str], tokens: list[str]
) -> str:
    first, second = (" ".join(tokens[mention.start : mention.end])[:40] for mention in pair)
    return f"{locations[pair[1]]}: {second!r} crosses {first!r}, which {locations[pair[0]]} opens"
