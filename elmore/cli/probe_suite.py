"""elmore probe suite MODEL: scores on published sets of words and sentences."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmore.cli.options import Device, Json, ModelOption, Precision, Seed, take_model
from elmore.cli.probe_words import load_model
from elmore.cli.tables import print_json, print_table

if TYPE_CHECKING:
    from elmore.probe.suite.scores import Progress, SuiteResults


def suite(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with a subfolder for each set: blimp, wic, swords, lexsub, sts, sick, "
            "pos, chunk, ner, wsd; a set without one is listed as absent."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]", help="The model, as for --model.")
    ] = None,
    model: ModelOption = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Score only this set, which must be there; may be repeated.",
            show_default="all in the folder",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Draw the phenomena of BLiMP: .svg or .png."),
    ] = None,
    precision: Precision = "fast",
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Score a model on published sets of words and sentences, in their published formats.

    The row marked chosen uses the layer or method that was best on training or development data.
    Without --json, parts of a set (such as the phenomena of BLiMP) show the chosen method only.
    """
    from elmore.errors import ConfigError
    from elmore.probe.drawing import files
    from elmore.probe.suite import runner
    from elmore.probe.suite.blimp_chart import draw_blimp
    from elmore.weights import catalogue

    if out is not None:
        files.check_path(out)
    source, _ = take_model(arguments or [], model, needed=0)
    contents = runner.find_sets(data, sets or [])
    if out is not None and "blimp" not in contents.contents:
        raise ConfigError(f"--out {out} draws BLiMP, which is not among the sets; leave it out")
    elmo = load_model(source, device, precision)
    results = runner.score_sets(elmo, contents, _show_progress, seed=seed)
    if json:
        print_json({"model": source or catalogue.BUNDLED, **asdict(results)}, indent=2)
    else:
        _print_scores(results)
    if out is not None and "blimp" in results.scores:
        files.save(draw_blimp(results.scores["blimp"]), out)


@contextmanager
def _show_progress(name: str) -> "Iterator[Progress]":
    from elmore.cli.progress import show_progress

    with show_progress(name) as update:
        yield lambda done, items: update(done, items=items)


def _print_scores(results: "SuiteResults") -> None:
    rows = [
        {
            "set": name,
            "part": score.part,
            "split": score.split,
            "metric": score.metric,
            "method": score.method,
            "chosen": "*" if score.chosen else "",
            "score": f"{100 * score.score:.1f}",
            "95 %": f"{100 * score.low:.1f}-{100 * score.high:.1f}",
            "n": score.n,
        }
        for name, scores in results.scores.items()
        for score in scores
        if score.chosen or (score.part, score.metric) == (scores[0].part, scores[0].metric)
    ]
    if rows:
        print_table(rows, as_json=False)
    for name, reason in results.skipped.items():
        print(f"{name}: skipped, because {reason}")
    if results.absent:
        print(f"absent: {', '.join(results.absent)}")
