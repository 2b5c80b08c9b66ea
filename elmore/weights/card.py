"""The model card: README.md of a model folder, and what `elmore info` prints."""

import json
from typing import Any

from elmore.weights.bundle import Bundle
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening


def model_facts(bundle: Bundle) -> dict[str, Any]:
    """Return the facts about a model that `elmore info` prints."""
    config = bundle.config
    characters, lstm = config.characters, config.lstm
    reads = [
        f"characters (up to {characters.max_characters} a word)" if characters else "",
        f"words ({config.words.num_words:,} known)" if config.words else "",
    ]
    return {
        "language": bundle.card.language or "unknown",
        "licence": bundle.card.licence or "unknown",
        "training data": bundle.card.data or "unknown",
        "source": bundle.card.source or "trained with elmore",
        "reads": " and ".join(part for part in reads if part),
        "parameters": bundle.model.num_parameters,
        "layers": config.num_layers,
        "vector width": config.width,
        "filters": characters.num_filters if characters else 0,
        "highways": characters.num_highways if characters else 0,
        "LSTM": f"{lstm.num_layers} x {lstm.cell_dim}, projected to {lstm.output_dim}",
        "skip connections": lstm.skip_connections,
        "clips": f"cell {lstm.cell_clip}, output {lstm.output_clip}",
        "forget bias": lstm.forget_bias,
        "vocabulary": len(bundle.vocabulary) if bundle.vocabulary else 0,
        "softmax": _softmax_kind(bundle),
        "warm start": bundle.warm_state is not None,
        "mixes": len(bundle.mixes),
        "whitening": _describe_whitening(bundle.whitening),
    } | {f"pooling {name}": _describe(pooling) for name, pooling in bundle.poolings.items()}


def _describe(pooling: TextPooling) -> str:
    """Return the width and the origin of a pooling."""
    facts = [f"{key} {value}" for key, value in pooling.origin.items()]
    return "; ".join([f"width {pooling.width}", *facts])


def _describe_whitening(whitening: Whitening | None) -> str:
    """Return the layers and the origin of a whitening."""
    if whitening is None:
        return "none"
    facts = [f"{key} {value}" for key, value in whitening.origin.items()]
    return "; ".join([f"layers {', '.join(whitening.layers)}", *facts])


def _softmax_kind(bundle: Bundle) -> str:
    if bundle.lacks_softmax:
        return "softmax.safetensors is missing"
    return bundle.softmax.config.kind if bundle.softmax else "none"


def format_facts(facts: dict[str, Any]) -> str:
    """Return facts as aligned lines for a terminal."""
    width = max(map(len, facts))
    lines = []
    for key, value in facts.items():
        items = [f"{v}  {k}" for k, v in value.items()] if isinstance(value, dict) else value
        for number, item in enumerate(items if isinstance(items, list | tuple) else [value]):
            lines.append(f"{'' if number else key:{width}}  {_format_value(item)}")
    return "\n".join(lines)


def render_card(bundle: Bundle, name: str, *, usage: str | None = None) -> str:
    """Return the card as Markdown; `usage` is Python code that loads the model."""
    usage = usage or _default_usage(name)
    rows = "\n".join(
        f"| {_cell(key)} | {_cell(_format_value(value))} |"
        for key, value in model_facts(bundle).items()
    )
    return f"""# {_one_line(bundle.card.name or name)}

A bidirectional language model for contextual word vectors (ELMo, Peters et al. 2018).

| | |
|---|---|
{rows}

```python
{usage}
```
{_training_section(bundle.card.training)}"""


def _default_usage(name: str) -> str:
    return f"""import elmore

elmo = elmore.load("path/to/{name}")
print(elmo.embed(["A sentence to embed ."])[0].vectors.shape)"""


def _training_section(training: dict[str, Any] | None) -> str:
    """Return the section on how the model was trained."""
    if not training:
        return ""
    scored = training.get("scores", {})
    scores = "".join(f"| {_cell(key)} | {value:.4g} |\n" for key, value in scored.items())
    rest = {key: value for key, value in training.items() if key != "scores"}
    return f"""
## Training

| on held-out text | {"" if scores else "not measured"} |
|---|---|
{scores}
With this recipe, on the corpus that `elmore prepare` makes from this text:

```json
{json.dumps(rest, indent=2, ensure_ascii=False)}
```
"""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    """Return a text that does not end a row or a cell of a table in Markdown."""
    return _one_line(text).replace("|", "\\|")


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
