"""What `--embedder` names: ready-made word vectors, a biLM, both, or neither."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from elmore.embed.embedder import Embedder
from elmore.embed.jobs.job import model_digest
from elmore.embed.loading import load as load_embedder
from elmore.errors import ConfigError, ElmoreError
from elmore.tasks.embedding import stored_vectors, word_vectors
from elmore.tasks.embedding.word_vectors import WordVectors

_ELMO = r"elmo(?::(?P<{}>.*))?"
_FORMS = re.compile(
    rf"none|(?:glove|word2vec|fasttext):(?P<glove>.+?)(?:\+{_ELMO.format('beside')})?|{_ELMO.format('alone')}"
)

_WRITTEN = {"glove": "glove:FILE", "elmo": "elmo:MODEL"}


@dataclass(frozen=True, kw_only=True)
class Specification:
    """Names alone: nothing of it has been opened."""

    glove: str | None = None
    """A file of word vectors."""
    elmo: str | None = None
    """A model; empty for the one that comes with the package."""

    def __str__(self) -> str:
        parts = [f"glove:{self.glove}"] if self.glove is not None else []
        parts += [f"elmo:{self.elmo}"] if self.elmo is not None else []
        return "+".join(parts) or "none"


def parse(text: str) -> Specification:
    """Read `none`, `glove:FILE`, `elmo:MODEL` or `glove:FILE+elmo:MODEL`.

    `word2vec:FILE` and `fasttext:FILE` are other words for `glove:FILE`: the file says what it is.
    Paths become absolute ones, so that a run is found to be the same from anywhere.
    """
    match = _FORMS.fullmatch(text)
    if not match:
        raise ConfigError(
            f"embedder {text!r}: expected none, glove:FILE, elmo:MODEL or glove:FILE+elmo:MODEL "
            "(word2vec:FILE and fasttext:FILE are read alike)"
        )
    model = match["beside"] if match["beside"] is not None else match["alone"]
    asked = model is not None or "elmo" in (text, text.rpartition("+")[2])
    glove = match["glove"]
    return Specification(
        glove=None if glove is None else str(Path(glove).absolute()),
        elmo=_absolute_place(model or "") if asked else None,
    )


def _absolute_place(model: str) -> str:
    return str(Path(model).absolute()) if model and Path(model).exists() else model


@dataclass(frozen=True)
class Sources:
    """What was named, opened."""

    specification: Specification
    vectors: WordVectors | None = None
    elmo: Embedder | None = None
    copies: list[Path] = field(default_factory=list)
    """Folders of trained tasks that hold these word vectors."""

    @cached_property
    def digests(self) -> dict[str, str]:
        """Return the sha256 of the word vectors and of the biLM."""
        found = {}
        if self.vectors is not None:
            found["glove"] = vectors_digest(self.vectors)
        if self.elmo is not None:
            found["elmo"] = model_digest(self.elmo.bundle)
        return found


def vectors_digest(vectors: WordVectors) -> str:
    """Return the sha256 of the words and numbers of word vectors."""
    digest = hashlib.sha256("\n".join(vectors.words).encode("utf-8", "replace"))
    digest.update(vectors.matrix.data)
    return digest.hexdigest()


def opened(specification: Specification, *, device: str = "auto") -> Sources:
    """Open what was named."""
    vectors = elmo = None
    if specification.glove is not None:
        stored = Path(specification.glove).name == stored_vectors.NAME
        vectors = (stored_vectors.load if stored else word_vectors.read)(Path(specification.glove))
    if specification.elmo is not None:
        names = [specification.elmo] if specification.elmo else []
        elmo = load_embedder(*names, device=device)
    return Sources(specification, vectors, elmo)


def reopened(
    specification: Specification,
    digests: dict[str, str],
    where: Path,
    *,
    elmo_copies: Sequence[str] = (),
    device: str = "auto",
) -> Sources:
    """Open what a run was trained with, and nothing else.

    `elmo_copies` are places to try if the biLM of the specification is gone or another one.
    """
    vectors = _open_part(Specification(glove=specification.glove), "glove", where, device).vectors
    problems = []
    for model in dict.fromkeys([specification.elmo, *elmo_copies]):
        named = replace(specification, elmo=model)
        try:
            elmo = _open_part(Specification(elmo=model), "elmo", where, device).elmo
            return _check_digests(Sources(named, vectors, elmo), digests, where)
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def _check_digests(sources: Sources, digests: dict[str, str], where: Path) -> Sources:
    found = sources.digests
    changed = [name for name in found if found[name] != digests.get(name)]
    if changed:
        name = getattr(sources.specification, changed[0]) or "the model of the package"
        raise ConfigError(
            f"{where}: {name} is not what it was when this run was trained; put the old one back, "
            f"name it with --embedder {_WRITTEN[changed[0]]}, or train anew"
        )
    return sources


def _open_part(named: Specification, kind: str, where: Path, device: str) -> Sources:
    try:
        return opened(named, device=device)
    except (ElmoreError, OSError) as error:
        raise ConfigError(
            f"{where}: what it was trained with cannot be opened ({error}); name its new place "
            f"with --embedder {_WRITTEN[kind]}"
        ) from error
