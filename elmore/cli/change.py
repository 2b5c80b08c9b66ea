"""elmore change [MODEL] OLD NEW: which words changed their meaning between two corpora."""

import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmore.cli.interrupts import exit_on_interrupt
from elmore.cli.options import (
    Column,
    Device,
    Errors,
    Json,
    ModelOption,
    Precision,
    Seed,
    Tokenized,
    take_model,
)
from elmore.cli.tables import print_json, print_table

if TYPE_CHECKING:
    from elmore.probe.change.journal import WordChange
    from elmore.probe.change.measures import Measure
    from elmore.probe.change.study import ChangeStudy

_MAX_NAMED = 20  # words that are left out and named on stderr


def change(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] OLD NEW",
            help="The model; two corpora, each a text, .jsonl, .csv, .tsv or .parquet, also .gz "
            ".xz .bz2 .zst, or a pattern, or an index folder of `elmore neighbors`.",
        ),
    ],
    words: Annotated[
        Path | None,
        typer.Option(
            help="Words to compare, one per line, with other forms after commas: mouse, mice.",
            show_default="the most frequent",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder for ranking.svg and a map of each word."),
    ] = None,
    model: ModelOption = None,
    layer: Annotated[
        str | None,
        typer.Option(
            help="Layer: average, top, cloze, whitened, or a number.",
            show_default="top, or what an index has stored",
        ),
    ] = None,
    rank_by: Annotated[
        Literal["apd", "prt", "jsd"],
        typer.Option(help="Average pairwise, prototype, or Jensen-Shannon distance."),
    ] = "apd",
    uses: Annotated[
        int, typer.Option(min=0, help="Print senses, and N uses that moved, of each word.")
    ] = 0,
    max_uses: Annotated[
        int, typer.Option(min=2, help="Sample at most this many uses of a word per corpus.")
    ] = 200,
    min_uses: Annotated[
        int, typer.Option(min=2, help="Leave out words with fewer uses in a corpus.")
    ] = 10,
    max_words: Annotated[
        int, typer.Option(min=1, help="Compare at most this many words without --words.")
    ] = 1000,
    tokenized: Tokenized = False,
    column: Column = "text",
    errors: Errors = "strict",
    precision: Precision = "exact",
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Rank words by how much their meaning differs between two corpora.

    Each word is measured by its uses: the average pairwise distance and the distance of the means
    of their vectors, and the shift between sense clusters. Results are kept in the cache, so the
    same command continues a comparison that was stopped.
    """
    from elmore.cli.probe_words import load_model
    from elmore.cli.progress import show_progress
    from elmore.errors import ConfigError
    from elmore.probe.change import figures
    from elmore.probe.change.study import Progress, compare_corpora, read_words
    from elmore.probe.neighbors.source_text import TextOptions

    source, (old, new) = take_model(arguments, model, needed=2)
    forms = None if words is None else read_words(words)
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: expected a folder to write, found a file")
    elmo = load_model(source, device, precision)
    with exit_on_interrupt("run the same command to resume"), ExitStack() as stack:
        stage = cache(lambda name: stack.enter_context(show_progress(name)))  # one by one
        study = compare_corpora(
            elmo,
            old,
            new,
            words=forms,
            layer=layer,
            rank_by=rank_by,
            max_uses=max_uses,
            min_uses=min_uses,
            max_words=max_words,
            seed=seed,
            options=TextOptions(tokenized=tokenized, column=column, errors=errors),
            progress=Progress(
                read=lambda done, count: stage("reading")(done, sentences=count),
                measure=lambda done, count: stage("measuring")(done, words=count),
            ),
        )
    _report_left_out(study, min_uses)
    if json:
        for one in study:
            print_json(_to_dict(one))
    else:
        _print(study, uses)
    if out is not None:  # last: results do not depend on whether they can be drawn
        figures.save_figures(study, out, rank_by)


def _report_left_out(study: "ChangeStudy", min_uses: int) -> None:
    """Name the words that occur too rarely."""
    rare = study.left_out
    if not rare:
        return
    named = [f"{one.word} ({one.old} old, {one.new} new)" for one in rare[:_MAX_NAMED]]
    more = f" and {len(rare) - _MAX_NAMED} more" if len(rare) > _MAX_NAMED else ""
    print(
        f"left out {len(rare)} of {len(rare) + len(study)} words, which have fewer than {min_uses} "
        f"uses in a corpus: {', '.join(named)}{more}",
        file=sys.stderr,
    )


def _to_dict(one: "WordChange") -> dict[str, object]:
    from elmore import config

    row = config.as_dict(one)
    del row["format"]
    scores = row.pop("scores")
    uses = row.pop("uses")
    return {**row, **scores, "uses": uses}


def _print(study: "ChangeStudy", num_uses: int) -> None:
    print_table(
        [
            {
                "word": one.word,
                "old": one.old,
                "new": one.new,
                "apd": _interval(one.scores.apd),
                "prt": _interval(one.scores.prt),
                "jsd": _interval(one.scores.jsd),
                "p": f"{one.scores.p:.3f}",
                "senses": len(one.senses),
            }
            for one in study
        ],
        as_json=False,
    )
    if num_uses:
        for one in study:
            print(f"\n{one.word}")
            _print_senses(one)
            _print_uses(one, num_uses)


def _interval(one: "Measure") -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"


def _print_senses(one: "WordChange") -> None:
    from elmore.probe.occurrence_map import format_occurrence

    rows = [
        {
            "sense": number,
            "old": f"{100 * sense.old_share:.0f} %",
            "new": f"{100 * sense.new_share:.0f} %",
            "a use from its middle": format_occurrence(
                one.uses[sense.example].occurrence, context=7
            ),
        }
        for number, sense in enumerate(one.senses, start=1)
    ]
    print_table(rows, as_json=False)


def _print_uses(one: "WordChange", count: int) -> None:
    from elmore.probe.occurrence_map import format_occurrence

    by_distance = sorted(one.uses, key=lambda use: -use.moved)
    rows = [
        {
            "moved": f"{use.moved:.3f}",
            "period": use.period,
            "sense": use.cluster + 1,
            "line": use.line,
            "use": format_occurrence(use.occurrence, context=7),
        }
        for period in ("old", "new")
        for use in [use for use in by_distance if use.period == period][:count]
    ]
    print_table(rows, as_json=False)
