"""Report sections on probes, occurrences and scored texts."""

from collections import Counter

from elmore.probe import plots
from elmore.probe.context import WordForm
from elmore.probe.occurrence_map import OccurrenceMap, central_occurrence, format_occurrence
from elmore.probe.plots import bits
from elmore.probe.reporting.inputs import ReportInputs
from elmore.probe.reporting.load_results import Neighbor, ScoredText, Substitutes
from elmore.probe.reporting.page import Cell, ColouredWord, Highlight, Number, Section, Table
from elmore.probe.reporting.sections_training import format_number
from elmore.probe.wordnet import describe_sense

_MAX_FIGURES = 4  # texts with a figure
_MAX_TEXTS = 40  # texts that are shown at all
_FULL_COLOUR = 14.0  # bits of surprisal at which a word has the strongest colour


def probes(inputs: ReportInputs) -> Section | None:
    """Show the accuracy of probes per layer."""
    if not inputs.parts_of_speech and not inputs.senses:
        return None
    section = Section("Probes")
    for name, layers in inputs.parts_of_speech.items():
        section.add_heading(f"Parts of speech: {name}")
        figure = plots.parts_of_speech("Accuracy of the tag probe", layers)
        rows = []
        for one in layers:
            row: dict[str, Cell] = {"layer": one.layer, "test (%)": percent(one.test)}
            row["dev (%)"] = percent(one.dev)
            if one.control is not None and one.selectivity is not None:
                row["control (%)"] = percent(one.control)
                row["selectivity (%)"] = percent(one.selectivity)
            rows.append(row)
        table = Table("Accuracy of a linear probe of each layer", rows)
        section.add_figures({f"pos_{name}": figure}, table)
    differ = len({one.punctuation for one in inputs.senses.values()}) > 1
    for name, one in inputs.senses.items():
        section.add_heading(f"Word senses: {name}")
        section.add_paragraph(
            f"From {one.num_uses:,} annotated instances of {one.num_senses:,} senses."
            + (f" Quotes and brackets: {one.punctuation}." if differ else "")
        )
        figure = plots.senses("Senses by the nearest average", one)
        tables = {**({"held out": one.held_out} if one.held_out else {}), **one.tests}
        table = Table(
            "F1 of each layer; * is the best on held-out documents",
            [
                {
                    "text": title,
                    "layer": f"{layer} *" if layer == one.chosen else layer,
                    "F1 (%)": percent(scores["f1"]),
                    "95 %": f"{100 * scores['f1_low']:.1f} to {100 * scores['f1_high']:.1f}",
                }
                for title, layers in tables.items()
                for layer, scores in layers.items()
            ],
        )
        section.add_figures({f"wsd_{name}": figure}, table)
    return section


def percent(fraction: float) -> Number:
    """Return a cell in percent."""
    return Number(fraction, f"{100 * fraction:.2f}")


def context(inputs: ReportInputs) -> Section | None:
    """Show how much vectors depend on context."""
    section = Section("What context does")
    for name, one in inputs.contexts.items():
        section.add_heading(name)
        section.add_paragraph(
            f"{one.num_words:,} word forms with {one.min_uses} occurrences or more in "
            f"{one.num_sentences:,} sentences ({one.num_tokens:,} tokens). Cosines: 1 means that "
            "context does not change the vector."
        )
        table = Table(
            "Mean cosines of each layer",
            [
                {
                    "layer": layer.layer,
                    "occurrences of one word": format_number(layer.self_similarity, 3),
                    "words of one sentence": format_number(layer.intra_sentence, 3),
                    "random occurrences": format_number(layer.anisotropy, 3),
                    "one word, minus random": format_number(layer.self_similarity_corrected, 3),
                    "one sentence, minus random": format_number(layer.intra_sentence_corrected, 3),
                }
                for layer in one.layers
            ],
        )
        section.add_figures({f"context_{name}": plots.context("Similarity by layer", one)}, table)
        caption = "in the top layer: similarity of their occurrences, minus random"
        section.add_figures(
            {},
            Table(f"Steadiest {caption}", [*map(_word_row, one.steadiest)]),
            Table(f"Most changed {caption}", [*map(_word_row, one.most_changed)]),
        )
    return section if inputs.contexts else None


def _word_row(word: WordForm) -> dict[str, Cell]:
    row: dict[str, Cell] = {"word": word.word, "uses": word.uses}
    for layer, value in enumerate(word.self_similarity_corrected):
        row[f"layer {layer}"] = format_number(value, 3)
    return row


def maps(inputs: ReportInputs) -> Section | None:
    """Show the occurrences of words as points."""
    section = Section("Senses on a map")
    if inputs.maps:
        section.add_figures(
            {f"uses_{name}": plots.occurrence_map(one) for name, one in inputs.maps.items()}
        )
    for name, one in inputs.maps.items():
        section.add_heading(f"“{one.word}”: {name}")
        section.add_paragraph(describe_clusters(one))
        section.add_table("Clusters", cluster_rows(one))
    return section if inputs.maps else None


def describe_clusters(one: OccurrenceMap) -> str:
    """Describe how well clusters are separated and agree with senses."""
    drawn = "" if one.num_found == len(one.uses) else f" of {one.num_found}"
    clusters = "1 cluster" if one.num_clusters == 1 else f"{one.num_clusters} clusters"
    parts = [f"{len(one.uses)}{drawn} uses, {clusters}"]
    if one.silhouette is not None:
        parts.append(f"silhouette {one.silhouette:.2f}")
    if one.purity is not None and one.adjusted_rand is not None:
        parts.append(f"purity {one.purity:.2f}, adjusted Rand index {one.adjusted_rand:.2f}")
    return "; ".join(parts)


def cluster_rows(one: OccurrenceMap) -> list[dict[str, Cell]]:
    """Return a row for each cluster: its size, its commonest sense, a central occurrence."""
    rows = []
    for cluster in range(one.num_clusters):
        inside = [occurrence for occurrence in one.uses if occurrence.cluster == cluster]
        row: dict[str, Cell] = {"cluster": cluster + 1, "uses": len(inside)}
        known = Counter(occurrence.sense for occurrence in inside if occurrence.sense)
        if any(occurrence.sense for occurrence in one.uses):
            sense, count = known.most_common(1)[0] if known else ("", 0)
            row["commonest sense"] = describe_sense(sense) if sense else ""
            row["share (%)"] = Number(count / len(inside), f"{100 * count / len(inside):.0f}")
        row["a use from its middle"] = format_occurrence(central_occurrence(inside), context=7)
        rows.append(row)
    return rows


def neighbors(inputs: ReportInputs) -> Section | None:
    """Show the nearest occurrences of each query."""
    section = Section("Nearest occurrences")
    for queries in inputs.neighbors.values():
        for query in queries:
            section.add_table(f"Nearest to “{query.query}”", [*map(_neighbor_row, query.neighbors)])
    return section if inputs.neighbors else None


def _neighbor_row(one: Neighbor) -> dict[str, Cell]:
    return {
        "similarity (cosine)": format_number(one.similarity, 3),
        "use": _highlight(one),
        "line": one.line,
    }


def _highlight(one: Neighbor, context: int = 14) -> Highlight:
    first, last = max(0, one.position - context), one.position + context + 1
    before = [*(["…"] if first else []), *one.tokens[first : one.position], ""]
    after = ["", *one.tokens[one.position + 1 : last], *(["…"] if last < len(one.tokens) else [])]
    (word,) = one.tokens[one.position : one.position + 1] or ("",)
    return Highlight(" ".join(before), word, " ".join(after))


def surprise(inputs: ReportInputs) -> Section | None:
    """Show the surprisal of each word of scored texts."""
    section = Section("Surprisal")
    section.add_paragraph(
        "Surprisal of each word in bits, the mean of both directions: the stronger the colour, the "
        "higher the surprisal. A question mark follows a word that is not in the vocabulary."
    )
    for name, texts in inputs.texts.items():
        every = [one for one in texts if one.tokens]
        filled = every[:_MAX_TEXTS]
        section.add_heading(name)
        if len(every) > _MAX_TEXTS:
            section.add_paragraph(f"The first {_MAX_TEXTS} of {len(every):,} texts.")
        for one in filled:
            section.add_words(_coloured_words(one))
        section.add_figures(
            {
                f"surprise_{name}_{one.line}": plots.surprise(
                    f"Line {one.line}: surprisal of each word", one
                )
                for one in filled[:_MAX_FIGURES]
            }
        )
        section.add_table(
            "Bits of every word",
            [
                {
                    "line": one.line,
                    "word": word if known else f"{word} ?",
                    "forward (bits)": format_number(bits(forward)),
                    "backward (bits)": format_number(bits(backward)),
                }
                for one in filled
                for word, forward, backward, known in zip(
                    one.tokens, one.forward, one.backward, one.known, strict=True
                )
            ],
        )
        substitutes = [(one, gap) for one in filled for gap in one.substitutes]
        if substitutes:
            section.add_table("Substitutes", [_substitutes_row(*pair) for pair in substitutes])
    return section if inputs.texts else None


def _coloured_words(one: ScoredText) -> list[ColouredWord]:
    words = []
    for word, forward, backward, known in zip(
        one.tokens, one.forward, one.backward, one.known, strict=True
    ):
        mean = bits(forward + backward) / 2
        opacity = round(0.6 * min(1.0, max(0.0, mean / _FULL_COLOUR)), 2)
        tooltip = f"{mean:.1f} bits: {bits(forward):.1f} forward, {bits(backward):.1f} backward"
        words.append(ColouredWord(word if known else f"{word} ?", opacity, tooltip))
    return words


def _substitutes_row(one: ScoredText, substitutes: Substitutes) -> dict[str, Cell]:
    ways = {
        "forward": substitutes.forward,
        "backward": substitutes.backward,
        "both": substitutes.both,
    }
    row: dict[str, Cell] = {"line": one.line, "word": one.tokens[substitutes.position]}
    for way, words in ways.items():
        row[way] = " · ".join(word for word, _ in words)
    return row
