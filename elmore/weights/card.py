"""The model card: README.md of a model folder, and what `elmore info` prints."""

import json
from typing import Any

from elmore.weights.bundle import Bundle


def facts(bundle: Bundle) -> dict[str, Any]:
    """Say what a model is, in the order one asks."""
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
        "softmax": bundle.softmax.config.kind if bundle.softmax else "none",
        "warm start": bundle.warm_state is not None,
        "mixes": len(bundle.mixes),
    }


def lines(facts: dict[str, Any]) -> str:
    """Write the facts for a terminal, one a line."""
    width = max(map(len, facts))
    shown = []
    for key, value in facts.items():
        several = [f"{v}  {k}" for k, v in value.items()] if isinstance(value, dict) else value
        for number, item in enumerate(several if isinstance(several, list | tuple) else [value]):
            shown.append(f"{'' if number else key:{width}}  {_shown(item)}")
    return "\n".join(shown)


def page(bundle: Bundle, name: str, *, usage: str | None = None) -> str:
    """Write the card as Markdown; `usage` is Python that loads the model, if not as a folder."""
    usage = usage or _usage(name)
    rows = "\n".join(f"| {key} | {_shown(value)} |" for key, value in facts(bundle).items())
    return f"""# {bundle.card.name or name}

A bidirectional language model for contextual word vectors (ELMo, Peters et al. 2018).

| | |
|---|---|
{rows}

```python
{usage}
```
{_training(bundle.card.training)}"""


def _usage(name: str) -> str:
    return f"""import elmore

elmo = elmore.load("path/to/{name}")
print(elmo.embed(["A sentence to embed ."])[0].vectors.shape)"""


def _training(training: dict[str, Any] | None) -> str:
    """Say all it takes to train the model again."""
    if not training:
        return ""
    scored = training.get("scores", {})
    scores = "".join(f"| {key} | {value:.4g} |\n" for key, value in scored.items())
    rest = {key: value for key, value in training.items() if key != "scores"}
    return f"""
## Training

| on held-out text | {"" if scores else "not measured"} |
|---|---|
{scores}
With this recipe, on the corpus that `elmore prepare` makes of this text:

```json
{json.dumps(rest, indent=2, ensure_ascii=False)}
```
"""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
