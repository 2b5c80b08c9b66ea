"""elmore evaluate [MODEL] SHARDS: perplexity, forward and backward."""

from typing import Annotated, Literal

import typer

from elmore.cli.options import Device, Json, ModelOption, ShardsArguments, take_model
from elmore.cli.tables import print_json


def evaluate(
    arguments: ShardsArguments,
    model: ModelOption = None,
    reset_state: Annotated[
        bool,
        typer.Option(
            "--reset-state/--carry-state",
            help="Reset the LSTM state at each sentence, or carry it through the text.",
        ),
    ] = True,
    split: Annotated[
        Literal["train", "valid", "all"] | None,
        typer.Option(help="Part of the corpus.", show_default="valid if there is one, else all"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of parallel streams.")] = 64,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure the full-softmax perplexity of a language model on a prepared corpus."""
    from elmore.cli.progress import show_progress
    from elmore.cli.training import is_main_process
    from elmore.lm.evaluate import evaluate as run

    source, (shards,) = take_model(arguments, model, needed=1)
    with show_progress("evaluating") as update:
        scores = run(
            source,
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
        print_json(scores._asdict())
        return
    print(
        f"perplexity {scores.perplexity:.2f}  forward {scores.forward:.2f}  backward "
        f"{scores.backward:.2f}  bits per character {scores.bits_per_character:.3f}  tokens "
        f"{scores.tokens:,}  unknown words {100 * scores.oov:.2f} %"
    )
