"""Report sections on training: curves, perplexities, layer weights, sample efficiency."""

import re
from collections.abc import Sequence
from statistics import fmean

from elmore.probe import plots
from elmore.probe.reporting.inputs import ReportInputs
from elmore.probe.reporting.load_runs import Sweep, TrainingRun
from elmore.probe.reporting.page import Cell, Number, Section, Table
from elmore.tasks.sweep import Summary, format_mean_std

_SMALL = 5.0  # columns of smaller numbers get one more digit


def summary(inputs: ReportInputs) -> list[dict[str, Cell]]:
    """Return a row for each run: its kind, and its best score."""
    rows = [_best_row(run) for run in inputs.runs]
    rows += [_sweep_row(name, sweep) for name, sweep in inputs.sweeps.items()]
    for name, measured in inputs.perplexities.items():
        rows.append(
            {
                "run": name,
                "best": f"perplexity {measured.perplexity:.2f}",
                "what": "evaluation of a language model",
                "updates": None,
            }
        )
    return rows


def _best_row(run: TrainingRun) -> dict[str, Cell]:
    best = run.best()
    score = f"{run.metric} {best[1][run.metric]:.2f} at update {best[0]:,}" if best else "no score"
    description = f"{run.task}, {embedder_name(run)}" if run.task else "language model"
    return {"run": run.name, "best": score, "what": description, "updates": run.steps[-1]}


def _sweep_row(name: str, sweep: Sweep) -> dict[str, Cell]:
    metric = sweep.summary["metric"]
    parts = sweep.summary["summary"]
    largest = max(parts, key=lambda part: part.get("fraction") or 1.0)
    split = "test" if "test" in largest["scores"] else "dev"
    score = largest["scores"][split].get(metric)
    best = f"{metric} {format_mean_std(score)} on {split}" if score else "no score"
    description = f"{sweep.task}, {embedder_name(sweep.runs[0])}: {len(sweep.runs)} runs"
    return {"run": name, "best": best, "what": description, "updates": sweep.runs[-1].steps[-1]}


def embedder_name(run: TrainingRun) -> str:
    """Return the embedders of a task, without their folders."""
    parts = re.split(r"\+(?=\w+:)", run.embedder) if run.embedder else ["none"]
    named = []
    for part in parts:
        kind, _, source = part.partition(":")
        short = source.rstrip("/").rpartition("/")[2]
        named.append(f"{kind}:{short}" if short else kind)
    return " + ".join(named)


def language_models(inputs: ReportInputs) -> Section | None:
    """Show the training of language models."""
    runs = inputs.language_models
    if not runs and not inputs.perplexities:
        return None
    section = Section("Language models")
    scored = [run for run in runs if run.best()]
    figures = {}
    if scored:
        title = "Perplexity of held-out text, both directions"
        figures["perplexity"] = plots.held_out(title, scored, "perplexity")
    if runs:
        unit = "training loss (nats per token)"
        figures["training_loss"] = plots.training_loss("Training loss", runs, unit)
        section.add_figures(figures)
    for run in scored:
        section.add_table(f"{run.name}: evaluations on held-out text", evaluation_rows(run))
    if inputs.perplexities:
        rows = [
            {
                "model and text": name,
                "perplexity": format_number(one.perplexity),
                "forward": format_number(one.forward),
                "backward": format_number(one.backward),
                "bits per character": format_number(one.bits_per_character, 3),
                "tokens": one.tokens,
                "unknown words (%)": Number(one.oov, f"{100 * one.oov:.2f}"),
            }
            for name, one in inputs.perplexities.items()
        ]
        section.add_table("Measured perplexities", rows)
    return section


def evaluation_rows(run: TrainingRun) -> list[dict[str, Cell]]:
    """Return a row for each evaluation, with every score."""
    largest: dict[str, float] = {}
    for _, scores in run.evaluations:
        for name, value in scores.items():
            largest[name] = max(abs(value), largest.get(name, 0.0))
    rows = []
    for step, scores in run.evaluations:
        row: dict[str, Cell] = {"update": step}
        for name, value in scores.items():
            digits = 3 if largest[name] < _SMALL else 2
            row[_plain(name)] = int(value) if name == "tokens" else format_number(value, digits)
        rows.append(row)
    return rows


def _plain(name: str) -> str:
    return name.replace("_", " ")


def tasks(inputs: ReportInputs) -> Section | None:
    """Show the training of each task."""
    if not inputs.task_runs and not inputs.summaries:
        return None
    section = Section("Tasks")
    for kind in dict.fromkeys(run.task for run in inputs.task_runs):
        runs = [run for run in inputs.task_runs if run.task == kind]
        section.add_heading(str(kind))
        scored = [run for run in runs if run.best()]
        figures = {}
        if scored:
            metric = scored[0].metric
            figures[f"{kind}_score"] = plots.held_out(
                f"{kind}: {metric} on held-out examples", scored, f"{metric} (%)"
            )
        figures[f"{kind}_loss"] = plots.training_loss(f"{kind}: training loss", runs)
        section.add_figures(figures)
        if scored:
            rows = [_scores_row(run) for run in scored]
            section.add_table(f"{kind}: best evaluation of each run", rows)
        for run in scored:
            title = f"{run.name}: evaluations on held-out examples"
            section.add_table(title, evaluation_rows(run), fold=True)
        for run in inputs.runs:  # of several seeds, the summary tells more
            if run.task == kind:
                _add_test(section, run)
    for name, one in _summaries(inputs).items():
        section.add_table(f"{name}: mean and standard deviation over runs", _summary_rows(one))
    return section


def _add_test(section: Section, run: TrainingRun) -> None:
    """Add the scores on test examples: by label, what was confused, and examples of errors."""
    test = run.test
    if test is None:
        return
    row = {_plain(name): format_number(value) for name, value in test.scores.items()}
    section.add_table(f"{run.name}: scores on the test examples", [row])
    if not test.confusion:
        return
    stem = f"{run.name}_test"
    figures = {
        f"{stem}_labels": plots.label_scores(f"{run.name}: F1 of each label", test),
        f"{stem}_confusion": plots.confusion(f"{run.name}: confused labels", test),
    }
    section.add_figures(figures)
    rows = [{"gold": one.gold, "predicted": one.predicted, "text": one.text} for one in test.errors]
    section.add_table(f"{run.name}: the first errors on the test examples", rows, fold=True)


def _summaries(inputs: ReportInputs) -> dict[str, Summary]:
    return {name: sweep.summary for name, sweep in inputs.sweeps.items()} | inputs.summaries


def _scores_row(run: TrainingRun) -> dict[str, Cell]:
    best = run.best()
    assert best is not None
    return {
        "run": run.name,
        run.metric: format_number(best[1][run.metric]),
        "test": format_number(run.test.scores[run.test.metric]) if run.test else None,
        "at update": best[0],
        "vectors": embedder_name(run),
    }


def _summary_rows(one: Summary) -> list[dict[str, Cell]]:
    rows = []
    for part in one["summary"]:
        row: dict[str, Cell] = {}
        if "fraction" in part:
            row |= {"fraction": f"{part['fraction']:g}", "examples": part["examples"]}
        row["runs"] = part["num_runs"]
        for split, scores in part["scores"].items():
            for name, score in scores.items():
                row[f"{split} {_plain(name)}"] = Number(score["mean"], format_mean_std(score))
        rows.append(row)
    return rows


def layer_weights(inputs: ReportInputs) -> Section | None:
    """Show the learned layer weights, as in Figure 2 of the paper."""
    lines: list[tuple[str, list[float]]] = []
    rows: list[dict[str, Cell]] = []
    for run in inputs.task_runs:
        for insert_at, weights in run.mixes.items():
            row: dict[str, Cell] = {"task": run.task, "place": insert_at, "run": run.name}
            rows.append(row | {f"layer {i}": format_number(s, 3) for i, s in enumerate(weights)})
    for run in inputs.runs:
        lines += [
            (f"{run.task}, {insert_at}: {run.name}", mix) for insert_at, mix in run.mixes.items()
        ]
    for name, sweep in inputs.sweeps.items():
        most = max(run.fraction or 1.0 for run in sweep.runs)
        full = [run for run in sweep.runs if (run.fraction or 1.0) == most]
        for insert_at in full[0].mixes:
            columns = zip(
                *(run.mixes[insert_at] for run in full if insert_at in run.mixes), strict=True
            )
            lines.append(
                (f"{sweep.task}, {insert_at}: {name}", [fmean(weights) for weights in columns])
            )
    if not rows:
        return None
    section = Section("Layer weights")
    section.add_paragraph(
        "Layer weights of the scalar mix that a task learned, at the input (next to the word "
        "vectors) and at the output (next to the encoder's output). With three layers an equal mix "
        "has a weight of 1/3 each. For several seeds the mean is shown."
    )
    figure = plots.layer_weights(lines)
    section.add_figures({"layer_weights": figure}, Table("Layer weights of every run", rows))
    return section


def sample_efficiency(inputs: ReportInputs) -> Section | None:
    """Show scores by number of training examples."""
    sweeps = [one for one in inputs.sweeps.values() if "examples" in one.summary["summary"][0]]
    section = Section("Sample efficiency")
    section.add_paragraph(
        "Score against the number of training examples; bars are one standard deviation over seeds."
    )
    for kind in dict.fromkeys(one.task for one in sweeps):
        group = [one for one in sweeps if one.task == kind]
        section.add_figures({f"{kind}_sample_efficiency": _efficiency(kind, group)})
    return section if sweeps else None


def _efficiency(kind: str, group: Sequence[Sweep]) -> "plots.Canvas":
    tested = all("test" in part["scores"] for one in group for part in one.summary["summary"])
    metric = group[0].summary["metric"]
    title = f"{kind}: {metric} by number of examples"
    return plots.sample_efficiency(title, group, "test" if tested else "dev", metric)


def format_number(value: float, digits: int = 2) -> Number:
    """Return a cell with a fixed number of decimals."""
    return Number(value, f"{value:,.{digits}f}")
