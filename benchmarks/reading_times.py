"""Measure how well surprisal predicts what readers do: reading times and the N400.

    python benchmarks/reading_times.py natural-stories FOLDER [--model english] [--context sentence]
    python benchmarks/reading_times.py ucl all_measures.csv [--model english]
    python benchmarks/reading_times.py eye-tracking provo.csv [--model english]

Natural Stories (Futrell et al., 2021; github.com/languageMIT/naturalstories, of which FOLDER is a
copy): a linear regression predicts the logarithm of a word's mean self-paced reading time from
length and frequency of the word and the two before it, and then also from their surprisal. It is
fitted on nine stories and scored on the tenth: the sum of the log-likelihood gained, in nats. Times
and predictors have the mean of their story subtracted, since stories differ in their readers.

UCL (de Varda et al., 2023; all_measures.csv of github.com/Andrea-de-Varda/prediction-resource): the
partial correlation of surprisal with the N400, given length, frequency and position.

Provo and ZuCo (Luke and Christianson, 2018; Hollenstein et al., 2018; data/provo.csv and
data/training_data/train_and_valid.csv of github.com/SPOClab-ca/cmcl-shared-task, means over readers
on a common scale): the partial correlation of surprisal with first fixation duration, go-past time
and total reading time, given the position of the word, and length and `unigram` of the word and the
one before. Words are counted that are known, as is the word before. These files have neither counts
nor other models' surprisal.

Transformers split rare words into pieces, and a model of whole words would seem to win on these. So
only words that the other model keeps whole are counted. The intervals are of 10,000 bootstrap
resamples of the stories (or sentences), the same for all models.
"""

import argparse
import csv
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from elmore.lm.surprisal import WordSurprisal, measure_surprisal
from elmore.text.written_words import join_words
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

RESAMPLES = 10_000
LAGS = 2  # words before the current one, whose difficulty spills over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=list(MEASURES))
    parser.add_argument("path", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--context", default="sentence", help="as of `elmore surprisal`")
    options = parser.parse_args()
    bundle = pretrained.load(options.model)
    MEASURES[options.data](bundle, options.path, options.context)


def natural_stories(bundle: Bundle, folder: Path, context: str) -> None:
    words = defaultdict(list)
    for row in read_table(folder / "naturalstories_RTS/all_stories.tok", "\t"):
        words[int(row["item"])].append(row["word"])
    times = {
        (int(row["item"]), int(row["zone"])): float(row["meanItemRT"])
        for row in read_table(folder / "naturalstories_RTS/processed_wordinfo.tsv", "\t")
    }
    counts = read_counts(folder / "freqs/freqs-1.tsv")
    pieces = defaultdict(list)
    for row in read_table(folder / "probs/all_stories_gpt3.csv", ","):
        pieces[int(row["story"]) + 1].append((row["token"], row["logprob"]))

    columns = defaultdict(list)
    for story, written in words.items():
        ours = measure_surprisal(bundle, join_words(written), context=context)
        gpt3, whole = join_pieces(written, pieces[story])
        part = {
            "frequency": [np.log2(counts.get((story, i + 1), 0) + 1) for i in range(len(ours))],
            "gpt3": gpt3,
        }
        for name in ("length", "forward", "backward", "both", "entropy", "unigram"):
            part[name] = [getattr(word, name) for word in ours]
        for name, values in part.items():
            columns[name].append(with_lags(values))
        seen = [(story, i + 1) in times and whole[i] for i in range(len(ours))]
        columns["used"].append(np.array(seen) & (np.arange(len(ours)) > LAGS))
        columns["story"].append(np.full(len(ours), story))
        columns["time"].append([np.log(times.get((story, i + 1), 1)) for i in range(len(ours))])
    data = {name: np.concatenate(parts) for name, parts in columns.items()}
    used = data.pop("used")
    data = {name: values[used] for name, values in data.items()}
    rank = np.corrcoef(data["unigram"][:, 0], data["frequency"][:, 0])[0, 1]
    same = np.corrcoef(data["forward"][:, 0], data["gpt3"][:, 0])[0, 1]
    print(f"{len(data['time']):,} words of {sum(map(len, words.values())):,}, context: {context}")
    print(f"correlation of unigram and log frequency {rank:.3f}, of forward and GPT-3 {same:.3f}\n")
    report_gains(data)


def report_gains(data: dict[str, np.ndarray]) -> None:
    """Print the log-likelihood gained by predictors over others."""
    base = ("length", "frequency")
    questions = {
        "forward": (base, ("forward",)),
        "backward": (base, ("backward",)),
        "both": (base, ("both",)),
        "forward and entropy": (base, ("forward", "entropy")),
        "GPT-3 davinci": (base, ("gpt3",)),
        "forward, over GPT-3 too": ((*base, "gpt3"), ("forward",)),
        "GPT-3, over forward too": ((*base, "forward"), ("gpt3",)),
    }
    stories = np.unique(data["story"])
    draws = np.random.default_rng(0).integers(len(stories), size=(RESAMPLES, len(stories)))
    gains = {}
    print("| predictor | log-likelihood gained | 95 % interval |\n|---|---|---|")
    for name, (old, new) in questions.items():
        gain = held_out(data, (*old, *new)) - held_out(data, old)
        gains[name] = np.array([gain[data["story"] == story].sum() for story in stories])
        print(line(name, gains[name].sum(), gains[name][draws].sum(axis=1), "+.1f"))
    behind = gains["forward"] - gains["GPT-3 davinci"]
    print(line("forward minus GPT-3", behind.sum(), behind[draws].sum(axis=1), "+.1f"))


def held_out(data: dict[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Return the log-likelihood of each word's time, by a regression on the other stories."""
    table = np.column_stack([data["time"], *(data[name] for name in names)])
    for story in np.unique(data["story"]):
        table[data["story"] == story] -= table[data["story"] == story].mean(axis=0)
    times, features = table[:, 0], table[:, 1:]
    result = np.zeros(len(times))
    for story in np.unique(data["story"]):
        test = data["story"] == story
        weights, *_ = np.linalg.lstsq(features[~test], times[~test])
        error = times - features @ weights
        variance = error[~test].var()
        result[test] = -0.5 * (np.log(2 * np.pi * variance) + error[test] ** 2 / variance)
    return result


def with_lags(values: Sequence[float]) -> np.ndarray:
    """Return columns for each word and the ones before it; zeros before the first."""
    padded = np.concatenate([np.zeros(LAGS), values])
    return np.column_stack([padded[LAGS - lag : len(padded) - lag] for lag in range(LAGS + 1)])


def join_pieces(
    words: Sequence[str], pieces: Sequence[tuple[str, str]]
) -> tuple[list[float], list[bool]]:
    """Return each word's surprisal in bits without punctuation, and if it is one piece."""
    surprisal, count = np.zeros(len(words)), np.zeros(len(words), int)
    at, end = -1, True
    for token, log_prob in pieces:
        at += end or token[0].isspace()
        end = token[-1].isspace()
        if any(map(str.isalnum, token)):
            surprisal[at] -= float(log_prob or 0) / np.log(2)
            count[at] += 1
    assert at == len(words) - 1, "the pieces are of another text"
    return surprisal.tolist(), (count == 1).tolist()


def ucl(bundle: Bundle, path: Path, context: str) -> None:
    rows = [row for row in read_table(path, ",") if row["Subtlex_log10"]]
    rows = [row for row in rows if row["is_multitoken_GPT2_xl"] == "0"]
    scored: dict[str, list[WordSurprisal]] = {}
    for row in rows:
        text = row["sentence"]
        if text not in scored:
            scored[text] = measure_surprisal(bundle, join_words(text.split()), context=context)
    words = [scored[row["sentence"]][int(row["context_length"])] for row in rows]
    n400, xl, small, position, frequency, length = (
        np.array([float(row[name]) for row in rows])
        for name in (
            "N400", "s_GPT2_xl", "s_GPT2", "context_length", "Subtlex_log10", "length",
        )
    )  # fmt: skip
    controls = np.column_stack([np.ones(len(rows)), length, frequency, position])
    predictors = {
        "forward": np.array([word.forward for word in words]),
        "GPT-2 XL": xl,
        "GPT-2": small,
        "both": np.array([word.both for word in words]),
    }
    sentences = np.array([int(row["sent_id"]) for row in rows])
    members = [np.flatnonzero(sentences == sentence) for sentence in np.unique(sentences)]
    random = np.random.default_rng(0)
    draws = [
        np.concatenate([members[i] for i in random.integers(len(members), size=len(members))])
        for _ in range(RESAMPLES)
    ]
    print(f"{len(rows):,} words of {len(members)} sentences, context: {context}\n")
    print("| predictor | partial correlation with the N400 | 95 % interval |\n|---|---|---|")

    def correlate(values: np.ndarray) -> Callable[[np.ndarray], float]:
        return lambda chosen: partial_correlation(values[chosen], n400[chosen], controls[chosen])

    measured = {name: correlate(values) for name, values in predictors.items()}
    every = np.arange(len(rows))
    sampled = {name: np.array([of(draw) for draw in draws]) for name, of in measured.items()}
    for name, of in measured.items():
        print(line(name, of(every), sampled[name], "+.3f"))
    ahead = measured["forward"](every) - measured["GPT-2 XL"](every)
    print(line("forward minus GPT-2 XL", ahead, sampled["forward"] - sampled["GPT-2 XL"], "+.3f"))


def eye_tracking(bundle: Bundle, path: Path, context: str) -> None:
    times = {"FFD": "first fixation", "GPT": "go-past time", "TRT": "total time"}
    predictors = ("forward", "backward", "both", "entropy")
    sentences = defaultdict(list)
    for row in read_table(path, ","):
        sentences[int(row["sentence_id"])].append(row)
    products, num_words = [], 0
    for rows in sentences.values():
        written = [row["word"].removesuffix("<EOS>") for row in rows]
        words = measure_surprisal(bundle, join_words(written), context=context)
        table = np.array(
            [
                [1, position, word.length, word.unigram, before.length, before.unigram]
                + [getattr(word, name) for name in predictors]
                + [float(rows[position][name]) for name in times]
                for position, (before, word) in enumerate(itertools.pairwise(words), start=1)
                if word.known and before.known
            ]
        ).reshape(-1, 6 + len(predictors) + len(times))
        products.append(table.T @ table)
        num_words += len(table)
    # Everything follows from sums over sentences, so a resample is a sum with other weights
    random = np.random.default_rng(0)
    chances = np.full(len(products), 1 / len(products))
    draws = random.multinomial(len(products), chances, size=RESAMPLES)
    sampled = np.tensordot(draws, np.stack(products), axes=1)
    (observed,) = residual_correlations(np.sum(products, axis=0)[None], 6)
    resampled = residual_correlations(sampled, 6)
    print(f"{num_words:,} words of {len(products)} sentences, context: {context}\n")
    print("| predictor | " + " | ".join(times.values()) + " |\n|---|" + "---|" * len(times))
    for row, name in enumerate(predictors):
        cells = []
        for column in range(len(predictors), len(predictors) + len(times)):
            low, high = np.percentile(resampled[:, row, column], [2.5, 97.5])
            cells.append(f"{observed[row, column]:.3f} ({low:.3f} to {high:.3f})")
        print(f"| {name} | {' | '.join(cells)} |")


def residual_correlations(products: np.ndarray, num_controls: int) -> np.ndarray:
    """Return the correlations of columns given the first ones, from the products of all columns."""
    controls = products[:, :num_controls, :num_controls]
    both = products[:, :num_controls, num_controls:]
    explained = both.swapaxes(1, 2) @ np.linalg.solve(controls, both)
    left = products[:, num_controls:, num_controls:] - explained
    deviations = np.sqrt(np.einsum("rii->ri", left))
    return left / deviations[:, :, None] / deviations[:, None, :]


def partial_correlation(one: np.ndarray, other: np.ndarray, controls: np.ndarray) -> float:
    """Return the correlation of what the controls do not explain."""
    both = np.column_stack([one, other])
    weights = np.linalg.solve(controls.T @ controls, controls.T @ both)
    return float(np.corrcoef((both - controls @ weights).T)[0, 1])


def line(name: str, value: float, resampled: np.ndarray, form: str) -> str:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return f"| {name} | {value:{form}} | {low:{form}} to {high:{form}} |"


def read_counts(path: Path) -> dict[tuple[int, int], int]:
    """Return the count of each word in Google Books, by story and number."""
    counts = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            story, number, kind = row[0].split(".")
            if kind == "word":
                counts[int(story), int(number)] = 0 if row[3] == "NA" else int(row[3])
    return counts


def read_table(path: Path, delimiter: str) -> list[dict[str, str]]:
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))


MEASURES = {"natural-stories": natural_stories, "ucl": ucl, "eye-tracking": eye_tracking}


if __name__ == "__main__":
    main()
