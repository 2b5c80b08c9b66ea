"""What is gathered runs together, and each gets what it would get alone."""

import numpy as np
import pytest

from elmore.embed.continuous import ContinuousBatcher
from elmore.lm import scoring
from elmore.model.native_bilm import NativeBiLM
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.serve import engine as serve_engine
from elmore.serve.engine import SCORE, EmbedWork, Engine, SearchWork
from tests.support import toy_corpus

TEXTS = [text.split() for text in toy_corpus.sentences(12, seed=5)]


def finished(engine, number):
    result = {}
    while len(result) < number:
        result |= engine.step()
    return result


def test_scores_of_gathered_requests_are_one_run_of_the_model(embedder, monkeypatch):
    works = [TEXTS[:5], [], [[], *TEXTS[5:7]], TEXTS[7:]]
    run, runs = NativeBiLM.run, []
    monkeypatch.setattr(NativeBiLM, "run", lambda *ids: runs.append(1) or run(*ids))
    result = Engine(embedder).run(SCORE, works)
    assert len(runs) == 1
    for work, scores in zip(works, result, strict=True):
        alone = list(scoring.score(embedder.bundle, work))
        assert [each.tokens for each in scores] == work
        for one, other in zip(scores, alone, strict=True):
            assert one.known == other.known
            np.testing.assert_allclose(one.forward, other.forward, rtol=0, atol=1e-5)
            np.testing.assert_allclose(one.backward, other.backward, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layers", [["top"], ["average"], ["0", "1"], ["cloze"]])
def test_batched_searches_embed_together_and_search_separately(
    embedder, tmp_path, monkeypatch, layers
):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in toy_corpus.sentences(60)))
    index = OccurrenceIndex.build(
        tmp_path / "uses", embedder, [text], layers=layers, tokenized=True
    )
    works = [SearchWork(words, len(words) // 2, 3 + number) for number, words in enumerate(TEXTS)]
    calls, add = [], ContinuousBatcher.add
    monkeypatch.setattr(
        ContinuousBatcher, "add", lambda self, texts: calls.append(1) or add(self, texts)
    )
    engine = Engine(embedder, index)
    engine.add(dict(enumerate(works)))
    assert len(calls) == 1
    result = finished(engine, len(works))
    for number, work in enumerate(works):
        uses = result[number]
        alone = index.search(*work)
        assert [use.similarity for use in uses] == pytest.approx(
            [use.similarity for use in alone], abs=1e-5
        )
        assert len(uses) == work.k


def test_a_failed_search_does_not_affect_the_others(embedder):
    class Broken:
        layer = "top"

        def search_vector(self, vector, tokens, k):
            raise OSError("the index is gone")

    engine = Engine(embedder, Broken())
    engine.add({7: SearchWork(TEXTS[0], 0, 3), 9: EmbedWork(TEXTS[:2], "average")})
    result = finished(engine, 2)
    assert isinstance(result[7], OSError)
    for vectors, text in zip(result[9], TEXTS, strict=False):
        expected = embedder.embed([text])[0].vectors
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_a_canceled_request_is_not_answered(embedder):
    engine = Engine(embedder)
    engine.add({1: EmbedWork([["a"] * 50], "top"), 2: EmbedWork([["a"] * 40, []], "all")})
    engine.step()
    engine.abort([1, 3])
    result = finished(engine, 1)
    assert list(result) == [2]
    assert [each.shape for each in result[2]] == [(3, 40, 12), (3, 0, 12)]


def test_substitutes_cost_the_tokens_and_a_ranking_of_all_words():
    work = serve_engine.SubstitutesWork(["the", "play"], 0, 10)
    assert work.cost(0) == 4  # with both marks
    assert work.cost(1) == 5
    assert work.cost(serve_engine.WORDS_PER_TOKEN) == 5
    assert work.cost(100_003) == 4 + 15


def test_scores_cost_the_tokens_and_for_each_the_words_of_the_softmax():
    texts = [["the", "play"], ["a"]]
    assert serve_engine.score_cost(texts, 0) == 7  # with both marks
    assert serve_engine.score_cost(texts, 1) == 2 * 7
    assert serve_engine.score_cost(texts, serve_engine.SCORED_WORDS_PER_TOKEN) == 2 * 7
    assert serve_engine.score_cost(texts, 100_003) == 5 * 7
    assert serve_engine.score_cost([], 100_003) == 0


def test_texts_to_score_are_split_into_parts_that_cost_little():
    texts = [["a"] * 10, [], ["a"] * 200, ["a"] * 40, ["a"] * 50]
    parts = serve_engine.split_scoring(texts, 1)
    assert [part for part, _ in parts] == [texts[:2], texts[2:3], texts[3:]]
    assert [cost for _, cost in parts] == [28, 404, 188]
    assert serve_engine.split_scoring([], 1) == [([], 0)]


def test_a_search_costs_the_tokens_the_comparisons_and_the_sentences_of_its_results():
    work = SearchWork(["the", "play"], 0, 10)
    assert work.cost(0) == 4 + 1  # with both marks
    assert work.cost(1_000) == 4 + 1 + 1
    assert work.cost(serve_engine.OCCURRENCES_PER_TOKEN) == 4 + 1 + 1
    assert work.cost(500_000) == 4 + 1 + 143
    assert work._replace(k=100).cost(0) == 4 + 4
