"""elmore evaluate MODEL SHARDS: perplexity, forward and backward."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def evaluate(
    model: Annotated[str, typer.Argument(help="a name, a model folder, or a run")],
    shards: Annotated[Path, typer.Argument(help="folder written by `elmore prepare`")],
    reset_state: Annotated[
        bool,
        typer.Option(
            "--reset-state/--carry-state",
            help="reset the LSTM state at each sentence, or carry it through the text",
        ),
    ] = True,
    split: Annotated[
        Literal["train", "valid", "all"] | None,
        typer.Option(help="part of the corpus", show_default="valid if there is one, else all"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="number of parallel streams")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Full-softmax perplexity of a language model on a prepared corpus."""
    import json as json_module

    from elmore.cli.progress import show_progress
    from elmore.cli.training import is_main_process
    from elmore.lm.evaluate import evaluate as run

    with show_progress("evaluating") as update:
        scores = run(
            model,
            shards,
            reset_state=reset_state,
            split=split,
            batch_size=batch_size,
            device=device,
            progress=(lambda fraction, tokens: update(fraction, tokens=tokens))
            if is_main_process()
            else None,
        )
    if not is_main_process():
        return
    if json:
        print(json_module.dumps(scores._asdict()))
        return
    print(
        f"perplexity {scores.perplexity:.2f}  forward {scores.forward:.2f}  backward "
        f"{scores.backward:.2f}  bits per character {scores.bits_per_character:.3f}  tokens "
        f"{scores.tokens:,}  unknown words {100 * scores.oov:.2f} %"
    )
