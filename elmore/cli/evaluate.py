"""elmore evaluate MODEL SHARDS: perplexity, forward and backward."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def evaluate(
    model: Annotated[str, typer.Argument(help="a name, a model folder, or a run")],
    shards: Annotated[Path, typer.Argument(help="folder written by `elmore prepare`")],
    state: Annotated[
        Literal["sentence", "carried"],
        typer.Option(help="set anew at each sentence, or carried on through the text"),
    ] = "sentence",
    split: Annotated[
        Literal["train", "valid", "all"] | None,
        typer.Option(help="which text", show_default="valid where there is one, else all"),
    ] = None,
    rows: Annotated[int, typer.Option(help="stretches of the text read side by side")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the numbers as JSON")] = False,
) -> None:
    """Full-softmax perplexity of a language model on a prepared text."""
    import json as writer

    from elmore.cli.progress import showing
    from elmore.cli.training import speaks
    from elmore.lm.evaluate import evaluate as run

    with showing("evaluating") as update:
        found = run(
            model,
            shards,
            state=state,
            split=split,
            rows=rows,
            device=device,
            progress=(lambda fraction, tokens: update(fraction, tokens=tokens))
            if speaks()
            else None,
        )
    if not speaks():
        return
    if json:
        print(writer.dumps(found._asdict()))
        return
    print(
        f"perplexity {found.perplexity:.2f}  forward {found.forward:.2f}  backward "
        f"{found.backward:.2f}  bits per character {found.bits_per_character:.3f}  tokens "
        f"{found.tokens:,}  unknown words {100 * found.oov:.2f} %"
    )
