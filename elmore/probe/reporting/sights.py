"""What a report says of probes, uses and texts."""

from collections import Counter

from elmore.probe import plots
from elmore.probe.context import WordForm
from elmore.probe.plots import bits
from elmore.probe.reporting.findings import Findings
from elmore.probe.reporting.page import Cell, Number, Section, text
from elmore.probe.reporting.printed import Likely, Neighbor, Neighbors, Text
from elmore.probe.reporting.trainings import number
from elmore.probe.use_map import UseMap
from elmore.probe.wordnet_files import described

_FIGURES = 4  # texts that are drawn; the others are shown in colour
_TEXTS = 40  # that are shown at all
_FULL = 14.0  # bits of surprise, from which on a word has all its colour


def probes(found: Findings) -> Section | None:
    """Show what each layer knows."""
    if not found.parts_of_speech and not found.senses:
        return None
    section = Section("Probes")
    for name, layers in found.parts_of_speech.items():
        section.head(f"Parts of speech: {name}")
        figure = plots.parts_of_speech("Tags that a layer tells", layers)
        rows = []
        for one in layers:
            row: dict[str, Cell] = {"layer": one.layer, "test (%)": percent(one.test)}
            row["dev (%)"] = percent(one.dev)
            if one.control is not None and one.selectivity is not None:
                row["control (%)"] = percent(one.control)
                row["selectivity (%)"] = percent(one.selectivity)
            rows.append(row)
        section.beside(f"pos_{name}", figure, "Tags told by a linear probe of each layer", rows)
    for name, one in found.senses.items():
        section.head(f"Word senses: {name}")
        section.say(f"From {one.num_uses:,} annotated uses of {one.num_senses:,} senses.")
        figure = plots.senses("Senses by the nearest average", one)
        tables = {**({"held out": one.held_out} if one.held_out else {}), **one.tests}
        section.beside(
            f"wsd_{name}",
            figure,
            "F1 of each layer; * is the best on held-out documents",
            [
                {
                    "text": title,
                    "layer": f"{layer} *" if layer == one.chosen else layer,
                    "F1 (%)": percent(scores["f1"]),
                    "95 %": f"{100 * scores['f1_low']:.1f} to {100 * scores['f1_high']:.1f}",
                }
                for title, table in tables.items()
                for layer, scores in table.items()
            ],
        )
    return section


def percent(share: float) -> Number:
    """Show a share in percent."""
    return Number(share, f"{100 * share:.2f}")


def context(found: Findings) -> Section | None:
    """Show how much the vectors of a word differ."""
    section = Section("What context does")
    for name, one in found.contexts.items():
        section.head(name)
        section.say(
            f"{one.num_words:,} word forms with {one.least} uses or more in {one.num_sentences:,} "
            f"sentences ({one.num_tokens:,} tokens); cosines, 1 is a vector that does not change."
        )
        section.beside(
            f"context_{name}",
            plots.context("Similarity by layer", one),
            "Mean cosines of each layer",
            [
                {
                    "layer": layer.layer,
                    "uses of one word": number(layer.self_similarity, 3),
                    "words of one sentence": number(layer.intra_sentence, 3),
                    "random uses": number(layer.anisotropy, 3),
                    "one word, less random": number(layer.self_similarity_corrected, 3),
                    "one sentence, less random": number(layer.intra_sentence_corrected, 3),
                }
                for layer in one.layers
            ],
        )
        section.tables(
            {
                f"{title} in the top layer: similarity of their uses, less random": [
                    _form(word) for word in words
                ]
                for title, words in (
                    ("Steadiest", one.steadiest),
                    ("Most changed", one.most_changed),
                )
            }
        )
    return section if found.contexts else None


def _form(word: WordForm) -> dict[str, Cell]:
    row: dict[str, Cell] = {"word": word.word, "uses": word.uses}
    for layer, value in enumerate(word.self_similarity_corrected):
        row[f"layer {layer}"] = number(value, 3)
    return row


def maps(found: Findings) -> Section | None:
    """Show the uses of words as points."""
    section = Section("Senses on a map")
    if found.maps:
        section.draw(**{f"uses_{name}": plots.use_map(one) for name, one in found.maps.items()})
    for name, one in found.maps.items():
        section.head(f"“{one.word}”: {name}")
        section.say(agreement(one))
        section.table("Clusters", [*clusters(one)])
    return section if found.maps else None


def agreement(one: UseMap) -> str:
    """Say how well clusters stand apart, and how well they agree with senses."""
    drawn = "" if one.num_found == len(one.uses) else f" of {one.num_found}"
    clusters = "1 cluster" if one.num_clusters == 1 else f"{one.num_clusters} clusters"
    parts = [f"{len(one.uses)}{drawn} uses, {clusters}"]
    if one.silhouette is not None:
        parts.append(f"silhouette {one.silhouette:.2f}")
    if one.purity is not None and one.adjusted_rand is not None:
        parts.append(f"purity {one.purity:.2f}, adjusted Rand index {one.adjusted_rand:.2f}")
    return "; ".join(parts)


def clusters(one: UseMap) -> list[dict[str, Cell]]:
    """Give a row for each cluster: its size, its commonest sense, a use from its middle."""
    rows = []
    for cluster in range(one.num_clusters):
        uses = [use for use in one.uses if use.cluster == cluster]
        row: dict[str, Cell] = {"cluster": cluster + 1, "uses": len(uses)}
        known = Counter(use.sense for use in uses if use.sense)
        if any(use.sense for use in one.uses):
            sense, count = known.most_common(1)[0] if known else ("", 0)
            row["commonest sense"] = described(sense) if sense else ""
            row["share (%)"] = Number(count / len(uses), f"{100 * count / len(uses):.0f}")
        x, y = (sum(getattr(use, way) for use in uses) / len(uses) for way in "xy")
        middle = min(uses, key=lambda use: (use.x - x) ** 2 + (use.y - y) ** 2)
        row["a use from its middle"] = plots.sentence(middle, around_it=7)
        rows.append(row)
    return rows


def neighbors(found: Findings) -> Section | None:
    """Show the uses nearest to a use."""
    section = Section("Nearest uses")
    for queries in found.neighbors.values():
        for query in queries:
            section.html(_query(query))
    return section if found.neighbors else None


def _query(query: Neighbors) -> str:
    rows = "".join(
        f'<tr><td class="number"><data value="{one.similarity!r}">{one.similarity:.3f}</data></td>'
        f'<td class="text">{_marked(one)}</td><td class="number">{one.line}</td></tr>'
        for one in query.neighbors
    )
    return (
        f'<div class="scroll"><table><caption>Nearest to “{text(query.query)}”</caption><thead><tr>'
        '<th class="number" scope="col">similarity (cosine)</th><th scope="col">use</th>'
        f'<th class="number" scope="col">line</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _marked(one: Neighbor, around_it: int = 14) -> str:
    first, last = max(0, one.position - around_it), one.position + around_it + 1
    before, after = one.tokens[first : one.position], one.tokens[one.position + 1 : last]
    parts = [
        *(["…"] if first else []),
        *map(text, before),
        *(f"<mark>{text(word)}</mark>" for word in one.tokens[one.position : one.position + 1]),
        *map(text, after),
        *(["…"] if last < len(one.tokens) else []),
    ]
    return " ".join(parts)


def surprise(found: Findings) -> Section | None:
    """Show which words a language model did not expect."""
    section = Section("Surprise")
    section.say(
        "How many bits each word was worth, the mean of both directions: the fuller the colour, "
        "the more of a surprise. A question mark stands for a word that the softmax does not know."
    )
    for name, texts in found.texts.items():
        every = [one for one in texts if one.tokens]
        filled = every[:_TEXTS]
        section.head(name)
        if len(every) > _TEXTS:
            section.say(f"The first {_TEXTS} of {len(every):,} texts.")
        for one in filled:
            section.html(f'<p class="words">{_coloured(one)}</p>')
        section.draw(
            **{
                f"surprise_{name}_{one.line}": plots.surprise(
                    f"Line {one.line}: surprise of each word", one
                )
                for one in filled[:_FIGURES]
            }
        )
        section.table(
            "Bits of every word",
            [
                {
                    "line": one.line,
                    "word": word if known else f"{word} ?",
                    "forward (bits)": number(bits(forward)),
                    "backward (bits)": number(bits(backward)),
                }
                for one in filled
                for word, forward, backward, known in zip(
                    one.tokens, one.forward, one.backward, one.known, strict=True
                )
            ],
        )
        likely = [(one, place) for one in filled for place in one.substitutes]
        if likely:
            section.table("What could stand there", [_likely(*pair) for pair in likely])
    return section if found.texts else None


def _coloured(one: Text) -> str:
    spans = []
    for word, forward, backward, known in zip(
        one.tokens, one.forward, one.backward, one.known, strict=True
    ):
        mean = bits(forward + backward) / 2
        strength = 0.6 * min(1.0, max(0.0, mean / _FULL))
        shown = text(word if known else f"{word} ?")
        note = f"{mean:.1f} bits: {bits(forward):.1f} forward, {bits(backward):.1f} backward"
        colour = f"background:rgba(var(--warm),{strength:.2f})"
        spans.append(f'<span style="{colour}" title="{note}">{shown}</span>')
    return " ".join(spans)


def _likely(one: Text, found: Likely) -> dict[str, Cell]:
    ways = {"forward": found.forward, "backward": found.backward, "both": found.both}
    row: dict[str, Cell] = {"line": one.line, "word": one.tokens[found.position]}
    for way, words in ways.items():
        row[way] = " · ".join(word for word, _ in words)
    return row
