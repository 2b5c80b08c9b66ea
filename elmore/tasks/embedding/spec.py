"""The `--embedder` option: word vectors, a biLM, both, or neither."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from elmore.embed.embedder import Embedder
from elmore.embed.loading import load as load_embedder
from elmore.errors import ConfigError, ElmoreError
from elmore.tasks.embedding import word_vectors
from elmore.tasks.embedding.word_vectors import WordVectors
from elmore.weights.digest import model_digest

_ELMO = r"elmo(?::(?P<{}>.*))?"
_FORMS = re.compile(
    rf"none|(?:glove|word2vec|fasttext):(?P<glove>.+?)(?:\+{_ELMO.format('beside')})?|{_ELMO.format('alone')}"
)

_OPTIONS = {"glove": "glove:FILE", "elmo": "elmo:MODEL"}


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec:
    """Paths and names only: nothing has been opened."""

    glove: str | None = None
    """A file of word vectors."""
    elmo: str | None = None
    """A model; empty for the bundled one."""

    def __str__(self) -> str:
        parts = [f"glove:{self.glove}"] if self.glove is not None else []
        parts += [f"elmo:{self.elmo}"] if self.elmo is not None else []
        return "+".join(parts) or "none"


def parse_spec(text: str) -> EmbedderSpec:
    """Parse `none`, `glove:FILE`, `elmo:MODEL` or `glove:FILE+elmo:MODEL`.

    `word2vec:FILE` and `fasttext:FILE` mean the same as `glove:FILE`: the format is detected from
    the file. Paths become absolute, so that a run can be resumed from another folder.

    Raises:
        ConfigError: the text has none of these forms.
    """
    match = _FORMS.fullmatch(text)
    if not match:
        raise ConfigError(
            f"embedder {text!r}: expected none, glove:FILE, elmo:MODEL or glove:FILE+elmo:MODEL "
            "(word2vec:FILE and fasttext:FILE mean the same as glove:FILE)"
        )
    model = match["beside"] if match["beside"] is not None else match["alone"]
    has_elmo = model is not None or "elmo" in (text, text.rpartition("+")[2])
    glove = match["glove"]
    return EmbedderSpec(
        glove=None if glove is None else str(Path(glove).absolute()),
        elmo=_absolute_if_path(model or "") if has_elmo else None,
    )


def _absolute_if_path(model: str) -> str:
    return str(Path(model).absolute()) if model and Path(model).exists() else model


@dataclass(frozen=True)
class OpenEmbedders:
    """The word vectors and the biLM of a spec, in memory."""

    spec: EmbedderSpec
    vectors: WordVectors | None = None
    elmo: Embedder | None = None
    copies: list[Path] = field(default_factory=list)
    """Folders of trained tasks that hold a copy of these word vectors."""

    @cached_property
    def digests(self) -> dict[str, str]:
        """The sha256 of the word vectors and of the biLM, under `glove` and `elmo`."""
        digests = {}
        if self.vectors is not None:
            digests["glove"] = hash_vectors(self.vectors)
        if self.elmo is not None:
            digests["elmo"] = model_digest(self.elmo.bundle)
        return digests


def hash_vectors(vectors: WordVectors) -> str:
    """Return the sha256 of the words and numbers of word vectors."""
    digest = hashlib.sha256("\n".join(vectors.words).encode("utf-8", "replace"))
    digest.update(vectors.matrix.data)
    return digest.hexdigest()


def open_embedders(spec: EmbedderSpec, *, device: str = "auto") -> OpenEmbedders:
    """Read the word vectors of a spec and load its biLM."""
    vectors = elmo = None
    if spec.glove is not None:
        is_copy = Path(spec.glove).name == word_vectors.COPY_NAME
        read = word_vectors.load_copy if is_copy else word_vectors.read_word_vectors
        vectors = read(Path(spec.glove))
    if spec.elmo is not None:
        elmo = load_embedder(*([spec.elmo] if spec.elmo else []), device=device)
    return OpenEmbedders(spec, vectors, elmo)


def reopen_embedders(
    spec: EmbedderSpec,
    digests: dict[str, str],
    config_path: Path,
    *,
    other_elmos: Sequence[str] = (),
    device: str = "auto",
) -> OpenEmbedders:
    """Open the embedders of a trained task, and check that they are the same.

    Args:
        spec: where the task recorded them.
        digests: their sha256, as the task recorded it.
        config_path: the file that recorded it, for messages.
        other_elmos: places to try if the biLM of the spec is missing or another one.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: one of them is missing or has changed.
    """
    vectors = _open_part(EmbedderSpec(glove=spec.glove), "glove", config_path, device).vectors
    errors = []
    for model in dict.fromkeys([spec.elmo, *other_elmos]):
        try:
            elmo = _open_part(EmbedderSpec(elmo=model), "elmo", config_path, device).elmo
            embedders = OpenEmbedders(replace(spec, elmo=model), vectors, elmo)
            _check_digests(embedders, digests, config_path)
            return embedders
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _check_digests(embedders: OpenEmbedders, digests: dict[str, str], config_path: Path) -> None:
    changed = [name for name, digest in embedders.digests.items() if digest != digests.get(name)]
    if changed:
        name = getattr(embedders.spec, changed[0]) or "the bundled model"
        raise ConfigError(
            f"{config_path}: {name} is not the one this task was trained with; restore it, name "
            f"its new place with --embedder {_OPTIONS[changed[0]]}, or train the task again"
        )


def _open_part(spec: EmbedderSpec, kind: str, config_path: Path, device: str) -> OpenEmbedders:
    try:
        return open_embedders(spec, device=device)
    except (ElmoreError, OSError) as error:
        raise ConfigError(
            f"{config_path}: an embedder of this task cannot be opened ({error}); name its new "
            f"place with --embedder {_OPTIONS[kind]}"
        ) from error
