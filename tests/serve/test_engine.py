"""What is gathered runs together, and each gets what it would get alone."""

import numpy as np
import pytest

from elmore.embed.few import Few
from elmore.lm import scoring
from elmore.probe.neighbors import UseIndex
from elmore.serve.engine import SCORE, SEARCH, Engine, Search, Uses
from elmore.text import marked
from tests import language

TEXTS = [text.split() for text in language.sentences(12, seed=5)]


def test_scores_of_gathered_requests_are_one_run_of_the_model(embedder):
    works = [TEXTS[:5], [], [[], *TEXTS[5:7]], TEXTS[7:]]
    runs = []
    counting = embedder.bundle.model.register_forward_hook(lambda *_: runs.append(1))
    found = Engine(embedder).run(SCORE, works)
    counting.remove()
    assert len(runs) == 1
    for work, scores in zip(works, found, strict=True):
        alone = list(scoring.score(embedder.bundle, work))
        assert [each.tokens for each in scores] == work
        for one, other in zip(scores, alone, strict=True):
            assert one.known == other.known
            np.testing.assert_allclose(one.forward, other.forward, rtol=0, atol=1e-5)
            np.testing.assert_allclose(one.backward, other.backward, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layers", [["top"], ["average"], ["0", "1"]])
def test_gathered_searches_are_read_together_and_found_alone(
    embedder, tmp_path, monkeypatch, layers
):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in language.sentences(60)))
    index = UseIndex.build(tmp_path / "uses", embedder, [text], layers=layers, tokenized=True)
    works = [Search(words, len(words) // 2, 3 + number) for number, words in enumerate(TEXTS)]
    reads, read = [], Few.embed
    monkeypatch.setattr(Few, "embed", lambda self, texts: reads.append(1) or read(self, texts))
    found = Engine(embedder, Uses(index, marked.use)).run(SEARCH, works)
    assert len(reads) == 1
    for work, uses in zip(works, found, strict=True):
        alone = index.search(*work)
        assert [use.similarity for use in uses] == pytest.approx(
            [use.similarity for use in alone], abs=1e-5
        )
        assert len(uses) == work.k
