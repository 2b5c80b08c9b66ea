"""What a report says of trainings: curves, perplexities, layer weights, sample efficiency."""

import re
from collections.abc import Sequence
from statistics import fmean

from elmore.probe import plots
from elmore.probe.reporting.findings import Findings
from elmore.probe.reporting.page import Cell, Number, Section
from elmore.probe.reporting.trained import Several, Trained
from elmore.tasks import sweep
from elmore.tasks.sweep import Summary

_SMALL = 5.0  # numbers that stay below have a digit more


def summary(found: Findings) -> list[dict[str, Cell]]:
    """Give a row for each run: what it is, and the best it came to."""
    rows = [_best_row(run) for run in found.runs]
    rows += [_several_row(name, many) for name, many in found.several.items()]
    for name, measured in found.perplexities.items():
        rows.append(
            {
                "run": name,
                "best": f"perplexity {measured.perplexity:.2f}",
                "what": "evaluation of a language model",
                "updates": None,
            }
        )
    return rows


def _best_row(run: Trained) -> dict[str, Cell]:
    best = run.best()
    shown = f"{run.metric} {best[1][run.metric]:.2f} at update {best[0]:,}" if best else "no score"
    what = f"{run.task}, {embedder(run)}" if run.task else "language model"
    return {"run": run.name, "best": shown, "what": what, "updates": run.steps[-1]}


def _several_row(name: str, many: Several) -> dict[str, Cell]:
    metric = many.summary["metric"]
    parts = many.summary["summary"]
    largest = max(parts, key=lambda part: part.get("fraction") or 1.0)
    split = "test" if "test" in largest["scores"] else "dev"
    score = largest["scores"][split].get(metric)
    best = f"{metric} {sweep.format_mean_std(score)} on {split}" if score else "no score"
    what = f"{many.task}, {embedder(many.runs[0])}: {len(many.runs)} runs"
    return {"run": name, "best": best, "what": what, "updates": many.runs[-1].steps[-1]}


def embedder(run: Trained) -> str:
    """Name what a task was trained on, without where that lies."""
    parts = re.split(r"\+(?=\w+:)", run.embedder) if run.embedder else ["none"]
    named = []
    for part in parts:
        kind, _, place = part.partition(":")
        short = place.rstrip("/").rpartition("/")[2]
        named.append(f"{kind}:{short}" if short else kind)
    return " + ".join(named)


def language_models(found: Findings) -> Section | None:
    """Show how language models learned."""
    runs = found.language_models
    if not runs and not found.perplexities:
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
        section.draw(**figures)
    for run in scored:
        section.table(f"{run.name}: evaluations on held-out text", evaluations(run))
    if found.perplexities:
        rows = [
            {
                "model and text": name,
                "perplexity": number(one.perplexity),
                "forward": number(one.forward),
                "backward": number(one.backward),
                "bits per character": number(one.bits_per_character, 3),
                "tokens": one.tokens,
                "unknown words (%)": Number(one.oov, f"{100 * one.oov:.2f}"),
            }
            for name, one in found.perplexities.items()
        ]
        section.table("Perplexities that were measured", rows)
    return section


def evaluations(run: Trained) -> list[dict[str, Cell]]:
    """Give a row for each evaluation, with every score."""
    most: dict[str, float] = {}
    for _, scores in run.evaluations:
        for name, value in scores.items():
            most[name] = max(abs(value), most.get(name, 0.0))
    rows = []
    for step, scores in run.evaluations:
        row: dict[str, Cell] = {"update": step}
        for name, value in scores.items():
            digits = 3 if most[name] < _SMALL else 2
            row[_plain(name)] = int(value) if name == "tokens" else number(value, digits)
        rows.append(row)
    return rows


def _plain(name: str) -> str:
    return name.replace("_", " ")


def tasks(found: Findings) -> Section | None:
    """Show how tasks were learned, each task on its own."""
    if not found.task_runs and not found.summaries:
        return None
    section = Section("Tasks")
    for kind in dict.fromkeys(run.task for run in found.task_runs):
        runs = [run for run in found.task_runs if run.task == kind]
        section.head(str(kind))
        scored = [run for run in runs if run.best()]
        figures = {}
        if scored:
            metric = scored[0].metric
            figures[f"{kind}_score"] = plots.held_out(
                f"{kind}: {metric} on held-out examples", scored, f"{metric} (%)"
            )
        figures[f"{kind}_loss"] = plots.training_loss(f"{kind}: training loss", runs)
        section.draw(**figures)
        if scored:
            rows = [_scores_row(run) for run in scored]
            section.table(f"{kind}: best evaluation of each run", rows)
        for run in scored:
            title = f"{run.name}: evaluations on held-out examples"
            section.table(title, evaluations(run), fold=True)
    for name, one in _summaries(found).items():
        section.table(f"{name}: mean and deviation over runs", _summary_rows(one))
    return section


def _summaries(found: Findings) -> dict[str, Summary]:
    return {name: many.summary for name, many in found.several.items()} | found.summaries


def _scores_row(run: Trained) -> dict[str, Cell]:
    best = run.best()
    assert best is not None
    return {
        "run": run.name,
        run.metric: number(best[1][run.metric]),
        "at update": best[0],
        "vectors": embedder(run),
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
                row[f"{split} {_plain(name)}"] = Number(score["mean"], sweep.format_mean_std(score))
        rows.append(row)
    return rows


def layer_weights(found: Findings) -> Section | None:
    """Show the learned mixes, as Figure 2 of the paper does."""
    lines: list[tuple[str, list[float]]] = []
    rows: list[dict[str, Cell]] = []
    for run in found.task_runs:
        for place, shares in run.mixes.items():
            row: dict[str, Cell] = {"task": run.task, "place": place, "run": run.name}
            rows.append(row | {f"layer {i}": number(s, 3) for i, s in enumerate(shares)})
    for run in found.runs:
        lines += [(f"{run.task}, {place}: {run.name}", mix) for place, mix in run.mixes.items()]
    for name, many in found.several.items():
        most = max(run.fraction or 1.0 for run in many.runs)
        full = [run for run in many.runs if (run.fraction or 1.0) == most]
        for place in full[0].mixes:
            both = zip(*(run.mixes[place] for run in full if place in run.mixes), strict=True)
            lines.append((f"{many.task}, {place}: {name}", [fmean(shares) for shares in both]))
    if not rows:
        return None
    section = Section("Layer weights")
    section.say(
        "What each layer of the biLM weighs in the mix that a task learned, where the layers "
        "come in (input: beside the word vectors, output: beside what the encoder makes of them). "
        "An equal mix has 1/3 in each of three layers. Of several seeds it is the mean."
    )
    figure = plots.layer_weights(lines)
    section.beside("layer_weights", figure, "Layer weights of every run", rows)
    return section


def sample_efficiency(found: Findings) -> Section | None:
    """Show how scores grow with the number of examples."""
    many = [one for one in found.several.values() if "examples" in one.summary["summary"][0]]
    section = Section("Sample efficiency")
    section.say("Score against the number of training examples; bars are one deviation over seeds.")
    for kind in dict.fromkeys(one.task for one in many):
        group = [one for one in many if one.task == kind]
        section.draw(**{f"{kind}_sample_efficiency": _efficiency(kind, group)})
    return section if many else None


def _efficiency(kind: str, group: Sequence[Several]) -> "plots.Canvas":
    tested = all("test" in part["scores"] for one in group for part in one.summary["summary"])
    metric = group[0].summary["metric"]
    title = f"{kind}: {metric} by number of examples"
    return plots.sample_efficiency(title, group, "test" if tested else "dev", metric)


def number(value: float, digits: int = 2) -> Number:
    """Show a number with so many digits."""
    return Number(value, f"{value:,.{digits}f}")
