"""elmore score [MODEL] TEXT: per-token log-probabilities of both directions, and substitutes."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from elmore.cli.options import (
    FILES,
    Column,
    Device,
    Errors,
    Json,
    ModelOption,
    Tokenized,
    take_model,
)
from elmore.cli.tables import escape_breaks, print_json

if TYPE_CHECKING:
    from elmore.lm.scoring import Scores
    from elmore.lm.substitutes import Substitutes
    from elmore.text.files import Lines
    from elmore.text.target_word import TargetWords
    from elmore.weights.bundle import Bundle

_BATCH_SIZE = 32  # texts of a file that are scored together


def score(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [FILES]...", help=f"The model, and {FILES}"),
    ] = None,
    model: ModelOption = None,
    substitutes: Annotated[
        int | None,
        typer.Option(
            min=1, help=r"Predict N words for each token, or only for those in \[brackets]."
        ),
    ] = None,
    rerank: Annotated[
        bool,
        typer.Option(
            "--rerank",
            help="Rank the substitutes again by how close their vectors in this place are to the "
            "word's own.",
        ),
    ] = False,
    tokenized: Tokenized = False,
    column: Column = "text",
    errors: Errors = "strict",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Print the log-probability of each word, given the words before it and those after it.

    One word per line: the word, forward, backward (natural logarithms), and ? if the softmax does
    not know it (it is scored as <UNK>). An empty line ends a text. With --substitutes three more
    lines follow a word: the predictions of the forward direction, the backward direction, and both
    together; with --rerank a fourth.
    """
    from elmore.cli.progress import show_progress
    from elmore.embed import networks
    from elmore.errors import ConfigError
    from elmore.lm import scoring
    from elmore.lm.substitutes import predict_substitutes
    from elmore.text.files import STDIN, Lines
    from elmore.weights import pretrained

    if rerank and substitutes is None:
        raise ConfigError("--rerank ranks substitutes again; pass --substitutes N too")
    source, files = take_model(arguments or [], model, needed=0, more=True)
    lines = Lines(files or ["-"], errors=errors, column=column)
    bundle = pretrained.load(*([source] if source else []))
    _, softmax = scoring.require_softmax(bundle)
    for module in (bundle.model, softmax.softmax):
        networks.move(module, device)
    batch_size = 1 if STDIN in lines.names else _BATCH_SIZE  # who writes to a pipe may wait
    shows_progress = not sys.stdout.isatty()  # on a terminal the output shows it
    with show_progress("scoring") as update:
        texts = _texts(lines, tokenized=tokenized, has_targets=substitutes is not None)
        scored = _score(bundle, texts, batch_size)
        for number, ((words, positions), scores) in enumerate(scored):
            predicted = None
            if substitutes:
                predicted = list(
                    predict_substitutes(
                        bundle, words, positions or None, count=substitutes, rerank=rerank
                    )
                )
            if json:
                print_json(_to_dict(number, scores, predicted))
            else:
                print(_plain(scores, predicted or []))
            if shows_progress:
                update(lines.fraction_after(number + 1), lines=number + 1)


def _texts(lines: "Lines", *, tokenized: bool, has_targets: bool) -> "Iterator[TargetWords]":
    """Yield the words of each text, and the positions of those in brackets if `has_targets`."""
    from elmore.text import target_word, tokenizers

    tokenizer = tokenizers.whitespace if tokenized else tokenizers.penn
    for line in lines:
        if not isinstance(line, str):
            yield target_word.TargetWords(line, [])
        elif has_targets:
            yield target_word.parse_targets(line, tokenizer)
        else:
            yield target_word.TargetWords(tokenizer(line).words, [])


def _score(
    bundle: "Bundle", texts: "Iterator[TargetWords]", batch_size: int
) -> "Iterator[tuple[TargetWords, Scores]]":
    from elmore.lm import scoring

    while batch := list(islice(texts, batch_size)):
        yield from zip(
            batch, scoring.score_batch(bundle, [words for words, _ in batch]), strict=True
        )


def _to_dict(
    number: int, scores: "Scores", predicted: "list[Substitutes] | None"
) -> dict[str, object]:
    row: dict[str, object] = {
        "line": number,
        **{key: list(value) for key, value in scores._asdict().items()},
    }
    if predicted is not None:
        row["substitutes"] = [
            {key: value for key, value in each._asdict().items() if value is not None}
            for each in predicted
        ]
    return row


def _plain(scores: "Scores", predicted: "list[Substitutes]") -> str:
    by_position = {each.position: each for each in predicted}
    lines = []
    for i, (word, forward, backward, known) in enumerate(zip(*scores, strict=True)):
        lines.append(
            f"{escape_breaks(word)}\t{forward:.4f}\t{backward:.4f}{'' if known else chr(9) + '?'}"
        )
        for name in ("forward", "backward", "both", "reranked") if i in by_position else ():
            ranked = getattr(by_position[i], name)
            if ranked is not None:
                words = "  ".join(f"{word} {value:.2f}" for word, value in ranked)
                lines.append(f"\t{name}\t{words}")
    return "\n".join([*lines, ""])
