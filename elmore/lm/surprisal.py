"""Surprisal of words as they are written, for the study of reading (Hale, 2001; Levy, 2008).

    surprisal(word) = -log2 P(word | context)                                            in bits
    entropy         = -sum_v P(v | context) log2 P(v | context)      v: the words of the softmax

The forward direction reads what stands before a word, the backward one what stands after it. `both`
combines them by Bayes' rule (`joint_prediction`).

A written word may be several tokens of the model: its surprisal is the sum over them, by the chain
rule. Punctuation is context, and is not counted, unless the word is nothing else. A token that the
softmax does not know costs `<UNK>` and the bits to spell it.

Shapes: T tokens of a text, P positions, D width of one direction, V words.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from elmore.errors import ConfigError
from elmore.lm.joint_prediction import combine_directions, unigram_log_probs
from elmore.lm.scoring import context_states, group_by_length, require_softmax
from elmore.lm.unknown_word_cost import UnknownWordCost
from elmore.text.characters import Alphabet
from elmore.text.written_words import WrittenText
from elmore.weights.bundle import Bundle

_States = Float[np.ndarray, "P D"]
_CHUNK = 64  # positions, whose distributions over all words are held at a time


class WordSurprisal(NamedTuple):
    """What the model says of one written word; None for a word without characters."""

    word: str
    start: int
    end: int
    """Offsets in characters of the text."""
    sentence: int
    """Number of its sentence in the text, from 0."""
    position: int
    """Number of the word in its sentence, from 0."""
    length: int
    """Characters, without punctuation."""
    tokens: int
    """Tokens of the model that are counted."""
    known: bool | None
    """Whether the softmax knows all of them."""
    forward: float | None
    """Surprisal given the context before the word."""
    backward: float | None
    """Surprisal given the context after it."""
    both: float | None
    """Surprisal given both."""
    gain: float | None
    """Information about the word from the context after it: `forward - both`."""
    entropy: float | None
    """Uncertainty about the word before it is read, given the context before."""
    unigram: float | None
    """Surprisal without context, by Zipf's law from the rank in the vocabulary."""


class _Window(NamedTuple):
    """Tokens that are read together, and those of them that are scored."""

    context: range
    scored: range


class _TokenBits(NamedTuple):
    known: Bool[np.ndarray, " T"]
    forward: Float[np.ndarray, " T"]
    backward: Float[np.ndarray, " T"]
    both: Float[np.ndarray, " T"]
    entropy: Float[np.ndarray, " T"]
    unigram: Float[np.ndarray, " T"]


def check_context(context: str) -> None:
    """Raise ConfigError unless a context is `sentence`, `text` or a number of words."""
    is_number = context.isascii() and context.isdecimal() and int(context) > 0
    if context not in ("sentence", "text") and not is_number:
        raise ConfigError(
            f"the context must be 'sentence', 'text' or a number of words from 1, found {context!r}"
        )


def measure_surprisal(
    bundle: Bundle, text: WrittenText, *, context: str = "sentence"
) -> list[WordSurprisal]:
    """Return the surprisal of each word of a text, and what goes with it in a study of reading.

    Args:
        bundle: A model with a softmax.
        text: The text, from `split_text` or `join_words`.
        context: What the model reads beside a word: its `sentence`, the whole `text`, or a number N
            of words before it and after it, across sentences.

    Raises:
        ConfigError: The context is none of these.
        DataError: The model has no softmax.
    """
    check_context(context)
    bits = _measure_tokens(bundle, text, list(_windows(text, context)))
    rows: list[WordSurprisal] = []
    for start, end, sentence, tokens in text.words:
        is_first = not rows or rows[-1].sentence != sentence
        position = 0 if is_first else rows[-1].position + 1
        counted = [i for i in tokens if any(map(str.isalnum, text.tokens[i]))] or list(tokens)
        length = sum(len(text.tokens[i]) for i in counted)
        place = (text.text[start:end], start, end, sentence, position, length, len(counted))
        if not counted:
            rows.append(WordSurprisal(*place, *[None] * 7))
            continue
        forward, backward, both, unigram = (
            float(each[counted].sum())
            for each in (bits.forward, bits.backward, bits.both, bits.unigram)
        )
        rows.append(
            WordSurprisal(
                *place,
                known=bool(bits.known[counted].all()),
                forward=forward,
                backward=backward,
                both=both,
                gain=forward - both,
                entropy=float(bits.entropy[counted[0]]),
                unigram=unigram,
            )
        )
    return rows


def _windows(text: WrittenText, context: str) -> Iterator[_Window]:
    if context == "sentence":
        yield from (_Window(sentence, sentence) for sentence in text.sentences)
    elif context == "text":
        every = range(len(text.tokens))
        if every:
            yield _Window(every, every)
    else:
        words = [word.tokens for word in text.words if word.tokens]
        for number, scored in enumerate(words):
            first = words[max(0, number - int(context))]
            last = words[min(len(words) - 1, number + int(context))]
            yield _Window(range(first.start, last.stop), scored)


def _measure_tokens(bundle: Bundle, text: WrittenText, windows: list[_Window]) -> _TokenBits:
    vocabulary, softmax = require_softmax(bundle)
    tokens = text.tokens
    targets = vocabulary.ids_in_text(tokens)
    (unknown_id,) = vocabulary.ids([vocabulary.marks.unknown])
    spelling = UnknownWordCost(tokens, targets, int(unknown_id), bundle.byte_counts)
    forward, backward, both, entropy = np.zeros((4, len(tokens)))
    for positions, before, after in _states(bundle, text, windows):
        for first in range(0, len(positions), _CHUNK):
            part = slice(first, first + _CHUNK)
            here = positions[part]
            ahead, back = softmax.log_probs(before[part]), softmax.log_probs(after[part])
            at = np.arange(len(here)), targets[here]
            forward[here], backward[here] = ahead[at], back[at]
            entropy[here] = -(np.exp(ahead) * ahead).sum(axis=1)
            both[here] = combine_directions(vocabulary, ahead, back)[at]
    nats = math.log(2)
    return _TokenBits(
        spelling.known,
        -forward / nats + spelling.bits,
        -backward / nats + spelling.bits,
        -both / nats + spelling.bits,
        entropy / nats,
        -unigram_log_probs(targets, len(vocabulary)) / nats + spelling.bits,
    )


def _states(
    bundle: Bundle, text: WrittenText, windows: list[_Window]
) -> Iterator[tuple[Int[np.ndarray, " P"], _States, _States]]:
    """Yield the positions that are scored, and the states before and after them."""
    stream, at = _mark_sentences(text, bundle.alphabet)
    contexts = [stream[at[window.context[0]] : at[window.context[-1]] + 1] for window in windows]
    for group in group_by_length(contexts):
        positions: list[int] = []
        states = []
        pairs = context_states(bundle, [contexts[i] for i in group])
        for i, (before, after) in zip(group, pairs, strict=True):
            context, scored = windows[i]
            own = [at[position] - at[context[0]] for position in scored]
            positions += scored
            states.append((before[own], after[own]))
        before, after = map(np.concatenate, zip(*states, strict=True))
        yield np.array(positions), before, after


def _mark_sentences(text: WrittenText, alphabet: Alphabet) -> tuple[list[str], list[int]]:
    """Return the tokens with the marks between sentences, and where each token is among them."""
    stream: list[str] = []
    at: list[int] = []
    for sentence in text.sentences:
        if stream:
            stream += [alphabet.end, alphabet.begin]
        at += range(len(stream), len(stream) + len(sentence))
        stream += text.tokens[sentence.start : sentence.stop]
    return stream, at
