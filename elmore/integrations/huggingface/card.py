"""The model card: README.md next to saved weights, and the front page of a hub repository."""

import re

from huggingface_hub import ModelCard, ModelCardData

from elmore.weights.bundle import Bundle
from elmore.weights.card import render_card

_LICENCES = re.compile(r"mit|apache-2\.0|cc0-1\.0|cc-by(-nc)?(-nd|-sa)?-\d\.\d|l?gpl-\d\.\d")
"""Licences of elmore's catalogue that the hub knows by the same name."""

_USAGE = """from transformers import {auto}, AutoTokenizer

import elmore.integrations.huggingface  # pip install "elmore[hf]"

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {auto}.from_pretrained("{name}")
out = model(**tokenizer(["A sentence to embed ."], return_tensors="pt"))"""


def build_card(bundle: Bundle, name: str, *, auto_class: str, pipeline_tag: str) -> ModelCard:
    """Return a card that describes the model and shows how to load it.

    Args:
        bundle: The model.
        name: Its name on the hub, or of its folder.
        auto_class: The class of transformers that loads it, such as "AutoModel".
        pipeline_tag: The hub's name of the task.
    """
    licence = bundle.card.licence.lower()
    data = ModelCardData(
        library_name="transformers",
        license=licence if _LICENCES.fullmatch(licence) else None,
        pipeline_tag=pipeline_tag,
        tags=["elmo", "elmore"],
    )
    usage = _USAGE.format(auto=auto_class, name=name)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{render_card(bundle, name, usage=usage)}")
