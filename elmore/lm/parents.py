"""The models that a new one is trained from, and the card that names them.

A parent gives its weights (`elmore finetune`, `elmore pretrain --init`), a teacher its layers as
targets. Both are named on the card of the new model, never by a path, which means nothing on
another machine. Their licences are joined with that of the text.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elmore.corpus.shards import Corpus
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle, Card
from elmore.weights.digest import model_digest, softmax_digest

_log = logging.getLogger(__name__)

_NAMELESS = "a model without a name"


@dataclass(frozen=True, kw_only=True)
class ParentModel:
    """A parent or a teacher, as the card of the new model describes it; empty if unknown."""

    name: str
    package: str = ""
    """The package that has it, with its version."""
    language: str = ""
    licence: str = ""
    data: str = ""
    source: str = ""
    sha256: str = ""
    softmax_sha256: str = ""
    """Tells whether a resumed run would copy another softmax; no fact for the card."""
    training: dict | None = None
    """How it was trained itself."""

    @property
    def full_name(self) -> str:
        """The name, with the package and its version."""
        return f"{self.name} ({self.package})" if self.package else self.name

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies it, for the training section of a card."""
        package = {"package": self.package} if self.package else {}
        rest = {"licence": self.licence, "data": self.data, "sha256": self.sha256}
        return {"name": self.name, **package, **rest}


def describe_parent(bundle: Bundle, sources: Sequence[str | Path]) -> ParentModel:
    """Describe a loaded model that a new one is trained from.

    Args:
        bundle: The model.
        sources: What it was loaded from, as for `elmore.load`.
    """
    card = bundle.card
    return ParentModel(
        name=card.name or card.source or _last_part(sources),
        package=pretrained.package_version(*sources),
        language=card.language,
        licence=card.licence,
        data=card.data,
        source=card.source,
        sha256=model_digest(bundle),
        softmax_sha256=softmax_digest(bundle),
        training=card.training,
    )


def unknown_parent(sources: Sequence[str | Path]) -> ParentModel:
    """Describe a model that is gone, of which only the path is known."""
    return ParentModel(name=_last_part(sources))


def _last_part(sources: Sequence[str | Path]) -> str:
    return Path(sources[-1]).name or _NAMELESS


def derive_card(
    own: Card,
    corpus: Corpus,
    recipe: dict[str, Any],
    *,
    parent: ParentModel | None,
    teacher: ParentModel | None = None,
    tuned: bool = False,
) -> Card:
    """Return the card of a new model.

    Args:
        own: What the recipe says of the new model and of its text.
        corpus: The text.
        recipe: The recipe.
        parent: The model that the weights are from.
        teacher: The model that was distilled.
        tuned: Whether the parent is fine-tuned, rather than the start of a pretraining.
    """
    training: dict[str, Any] = {"recipe": recipe}
    data, language = own.data, own.language or corpus.language
    if parent is not None:
        training["from"] = _facts_of_parent(parent)
        num_words = corpus.index["splits"]["train"]["num_words"]
        data = f"{parent.data or 'unknown'}; then {own.data or f'a text of {num_words:,} words'}"
        language = language or parent.language
    if teacher is not None:
        training["teacher"] = teacher.facts
    text = "the text of the fine-tuning" if tuned else "the training text"
    models = [model for model in (parent, teacher) if model is not None]
    return replace(
        own,
        language=language,
        licence=_join_licences(own.licence, text, models),
        data=data,
        source="; ".join(filter(None, [own.source, _describe_origin(parent, teacher, tuned)])),
        training=training,
    )


def _facts_of_parent(parent: ParentModel) -> dict[str, Any]:
    more = {"source": parent.source, "training": parent.training}
    return parent.facts | {key: value for key, value in more.items() if value}


def _describe_origin(parent: ParentModel | None, teacher: ParentModel | None, tuned: bool) -> str:
    parts = []
    if parent is not None and tuned:
        parts.append(f"fine-tuned from {parent.full_name}")
    elif parent is not None:
        parts.append(f"trained with elmore from the weights of {parent.full_name}")
    elif teacher is not None:
        parts.append("trained with elmore")
    if teacher is not None:
        parts.append(f"distilled from {teacher.full_name}")
    return ", ".join(parts)


def _join_licences(own: str, text: str, models: Sequence[ParentModel]) -> str:
    """Return the licences of the models and of the text, once if all are equal."""
    if not models:
        return own
    owners: dict[str, list[str]] = {}
    for licence, owner in [*((model.licence, model.name) for model in models), (own, text)]:
        names = owners.setdefault(licence or "unknown", [])
        names += [owner] if owner not in names else []
    if len(owners) == 1:
        return next(iter(owners))
    return "; ".join(
        # the licence of a model may itself be that of several
        f"{f'[{licence}]' if ';' in licence else licence} ({', '.join(names)})"
        for licence, names in owners.items()
    )


def warn_of_unknown_licence(own: Card) -> None:
    """Ask for the licence of the text if the recipe has none."""
    if not own.licence:
        _log.warning(
            "the licence of the text is unknown; for the model card, pass --set "
            "card.licence=NAME, and --set card.data=NAME to name the text"
        )
