"""The model card: README.md beside saved weights, and what a new repository on the hub shows."""

import re
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData

from elmore.integrations.huggingface.conversion import described
from elmore.weights.card import render_card

_CARD = "README.md"
_LICENCES = re.compile(r"mit|apache-2\.0|cc0-1\.0|cc-by(-nc)?(-nd|-sa)?-\d\.\d|l?gpl-\d\.\d")
"""Those of elmore's catalogue that the hub knows by the same name."""

_USAGE = """from transformers import {auto}, AutoTokenizer

import elmore.integrations.huggingface  # pip install "elmore[hf]"

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {auto}.from_pretrained("{name}")
out = model(**tokenizer(["A sentence to embed ."], return_tensors="pt"))"""


class WithCard:
    """For models: a card goes where the weights go, unless somebody wrote another."""

    auto_class = "AutoModel"
    pipeline_tag = "feature-extraction"

    def model_card(self, name: str) -> ModelCard:
        """Say what this model is, and how to load it by that name."""
        bundle = described(self)
        licence = bundle.card.licence.lower()
        data = ModelCardData(
            library_name="transformers",
            license=licence if _LICENCES.fullmatch(licence) else None,
            pipeline_tag=self.pipeline_tag,
            tags=["elmo", "elmore"],
        )
        usage = _USAGE.format(auto=self.auto_class, name=name)
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{render_card(bundle, name, usage=usage)}")

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does, and a card beside it."""
        parent: Any = super()
        parent.save_pretrained(save_directory, *args, **kwargs)
        path = Path(save_directory) / _CARD
        if path.parent.is_dir() and not path.exists():
            path.write_text(str(self.model_card(path.parent.name)), encoding="utf-8")

    def _upload_modified_files(
        self, working_dir: str, repo_id: str, files_timestamps: dict, **kwargs: Any
    ) -> Any:
        """Put our card in the place of an empty one; one that the repository has is left alone."""
        path = Path(working_dir) / _CARD
        if not HfApi().file_exists(repo_id, _CARD, token=kwargs.get("token")):
            card, asked = self.model_card(repo_id), ModelCard.load(path).data.get("tags") or []
            tags = [*card.data.get("tags"), *asked]
            card.data["tags"] = list(dict.fromkeys(tags))
            path.write_text(str(card), encoding="utf-8")
        parent: Any = super()
        return parent._upload_modified_files(working_dir, repo_id, files_timestamps, **kwargs)
