"""elmore score MODEL TEXT: per-token log-probabilities of both directions, and substitutes."""

import json as writer
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from elmore.lm.scoring import Scores
    from elmore.lm.substitutes import Substitutes
    from elmore.text.files import Lines
    from elmore.text.marked import Marked


def score(
    model: Annotated[str, typer.Argument(help="a name, a model folder, or a run")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="text, .jsonl or .parquet, also packed; - or nothing for stdin"),
    ] = None,
    substitutes: Annotated[
        int | None,
        typer.Option(min=1, help="so many words for the place of each, or of a word in [brackets]"),
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="the input is split on spaces already")
    ] = False,
    column: Annotated[str, typer.Option(help="of .jsonl and .parquet input")] = "text",
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")
    ] = "strict",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Say how likely each word was: natural logarithms, given what precedes and what follows.

    One word a line: the word, forward, backward, and ? where the softmax does not know it (it is
    scored as <UNK>). An empty line ends a text. With --substitutes three lines follow a word: what
    the forward, the backward and both directions together find likely there.
    """
    from elmore.cli.progress import showing
    from elmore.lm import scoring
    from elmore.lm.substitutes import substitutes as likely
    from elmore.text.files import Lines
    from elmore.train.distributed import init_distributed
    from elmore.weights import pretrained

    lines = Lines(files or ["-"], errors=errors, column=column)
    bundle = pretrained.load(model)
    _, softmax = scoring.language_model(bundle)
    watched = sys.stdout.isatty()  # then the words themselves are the progress
    with init_distributed(device) as (_, place), showing("scoring") as update:
        bundle.model.to(place)
        softmax.to(place)
        texts = _texts(lines, tokenized=tokenized, marks=substitutes is not None)
        for number, (words, places) in enumerate(texts):
            (found,) = scoring.score(bundle, [words])
            others = None
            if substitutes:
                others = list(likely(bundle, words, places or None, count=substitutes))
            if not watched:
                update(lines.fraction, lines=number)
            print(_json(number, found, others) if json else _plain(found, others or []))


def _texts(lines: "Lines", *, tokenized: bool, marks: bool) -> "Iterator[Marked]":
    """Give the words of each text, and the places of those in brackets, if brackets are marks."""
    from elmore.text import marked, tokenizers

    cut = tokenizers.whitespace if tokenized else tokenizers.penn
    for line in lines:
        if not isinstance(line, str):
            yield marked.Marked(line, [])
        elif marks:
            yield marked.read(line, cut)
        else:
            yield marked.Marked(cut(line).words, [])


def _json(number: int, found: "Scores", others: "list[Substitutes] | None") -> str:
    row = {"line": number, **{key: list(value) for key, value in found._asdict().items()}}
    if others is not None:
        row["substitutes"] = [other._asdict() for other in others]
    return writer.dumps(row, ensure_ascii=False)


def _plain(found: "Scores", others: "list[Substitutes]") -> str:
    after = {other.place: other for other in others}
    lines = []
    for place, (word, forward, backward, known) in enumerate(zip(*found, strict=True)):
        lines.append(f"{word}\t{forward:.4f}\t{backward:.4f}{'' if known else chr(9) + '?'}")
        for way in ("forward", "backward", "both") if place in after else ():
            words = "  ".join(f"{word} {value:.2f}" for word, value in getattr(after[place], way))
            lines.append(f"\t{way}\t{words}")
    return "\n".join([*lines, ""])
