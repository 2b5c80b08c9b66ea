import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.tasks import registry
from elmore.tasks.coref import antecedents, span_vectors
from elmore.tasks.coref.antecedents import PairScore, candidate_antecedents
from elmore.tasks.coref.config import CorefModelConfig
from elmore.tasks.coref.document import Document, Mention
from elmore.tasks.coref.model import CorefHead
from elmore.tasks.coref.span_vectors import SpanVectors
from elmore.tasks.embedding.network import PackedTokens, Widths
from tests.support.largest_tensor import Largest

WIDTHS = Widths(6, 2)
SMALL = CorefModelConfig(
    hidden_dim=4,
    score_dim=5,
    feature_dim=3,
    max_width=3,
    max_antecedents=4,
    spans_per_token=0.8,
    input_dropout=0.2,
)


def coref(*overrides: str):
    kind = registry.find_task("coref")
    return kind(registry.load_recipe(kind, None, overrides))


def document(*lengths: int, clusters=(), speakers=None) -> Document:
    sentences = [["w"] * length for length in lengths]
    result = [[Mention(*mention) for mention in cluster] for cluster in clusters]
    return Document(sentences, speakers or [""] * len(lengths), result)


def embedded(documents: list[Document], vectors: torch.Tensor | None = None) -> PackedTokens:
    """Random vectors, one for each token."""
    lengths = torch.tensor([len(s) for d in documents for s in d.sentences], dtype=torch.long)
    mask = torch.arange(max(lengths.tolist(), default=0)) < lengths[:, None]
    if vectors is None:
        vectors = torch.randn(int(mask.sum()), sum(WIDTHS))
    parts = vectors.split(list(WIDTHS), dim=1)
    return PackedTokens(parts[0], mask, parts[1], mask.flatten().nonzero().flatten())


def features(documents: list[Document], *, with_gold: bool = True):
    return coref().make_features(documents, [], with_gold=with_gold)


def model(config: CorefModelConfig = SMALL, max_tokens: int = 1000) -> CorefHead:
    return CorefHead(config, WIDTHS, max_tokens).eval()


TWO = [
    document(4, 1, 5, clusters=[[(0, 0, 2), (2, 1, 2)], [(0, 3, 4), (1, 0, 1), (2, 4, 5)]]),
    document(3, 6, clusters=[[(0, 1, 2), (1, 0, 3)]], speakers=["Ann", "Bo"]),
]


@pytest.mark.parametrize("at_a_time", [1, 3, 1024])
def test_a_spans_head_is_a_mean_by_attention_over_its_tokens(monkeypatch, at_a_time):
    monkeypatch.setattr(span_vectors, "_SPANS", at_a_time)
    spans = SpanVectors(SMALL, 8, 6)
    states, inputs = torch.randn(5, 8), torch.randn(5, 6)
    chosen = [(0, 0), (1, 3), (3, 4), (4, 4)]
    result = spans(states, inputs, torch.tensor(chosen))
    logits = spans.attention(states).squeeze(-1).tolist()
    for row, (first, last) in zip(result, chosen, strict=True):
        weights = [math.exp(logits[t]) for t in range(first, last + 1)]
        head = sum(
            weight / sum(weights) * inputs[t]
            for weight, t in zip(weights, range(first, last + 1), strict=True)
        )
        width = spans.widths.weight[last - first]
        assert_close(row, torch.cat([states[first], states[last], head, width]))


@pytest.mark.parametrize(("begin", "end"), [(0, 7), (0, 4), (3, 7), (6, 7)])
def test_all_spans_at_once_have_the_vectors_of_single_spans(begin, end):
    spans = SpanVectors(SMALL, 8, 6)
    states, inputs = torch.randn(7, 8), torch.randn(7, 6)
    result = spans.mention_hidden_all_spans(states, inputs, begin, end)
    for start, width in itertools.product(range(begin, end), range(SMALL.max_width)):
        if start + width < 7:
            span = torch.tensor([(start, start + width)])
            expected = spans.first(spans(states, inputs, span))[0]
            assert_close(result[start - begin, width], expected)


NO_GENRE = torch.tensor(0)


@pytest.mark.parametrize("genre", [None, 0, 2])
def test_a_pair_is_scored_by_both_their_product_distance_speakers_and_genre(genre):
    pairs = PairScore(replace(SMALL, use_genre=genre is not None), 6, num_genres=2).eval()
    vectors, speakers = torch.randn(12, 6), torch.tensor([0, 1, 1, 2, 0, 2, 1, 1, 2, 0, 1, 2])
    earlier, there = candidate_antecedents(12, 10, vectors.device)
    result = pairs(vectors, speakers, earlier, torch.tensor(genre or 0))
    buckets = [0, 1, 2, 3, 4, 4, 4, 5, 5, 5]  # of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 spans away
    for i, k in itertools.product(range(12), range(10)):
        j = i - k - 1
        assert there[i, k] == (j >= 0)
        if j < 0:
            continue
        both = bool(speakers[i] and speakers[j])
        said = (2 if speakers[i] == speakers[j] else 1) if both else 0
        parts = [pairs.distances.weight[buckets[k]], pairs.speakers.weight[said]]
        if genre is not None:
            parts.append(pairs.genres.weight[genre] if genre else torch.zeros(3))
        more = torch.cat(parts)
        first = pairs.later(vectors[i]) + pairs.earlier(vectors[j])
        first = first + pairs.product(vectors[i] * vectors[j]) + pairs.features(more)
        assert_close(result[i, k], pairs.score(first))


def test_pairs_scored_some_at_a_time_are_as_all_at_once(monkeypatch):
    pairs = PairScore(SMALL, 6).eval()
    vectors, speakers = torch.randn(9, 6), torch.ones(9, dtype=torch.long)
    earlier, _ = candidate_antecedents(9, 4, vectors.device)
    expected = pairs(vectors, speakers, earlier, NO_GENRE)
    monkeypatch.setattr(antecedents, "_PAIRS", 8)
    assert_close(pairs(vectors, speakers, earlier, NO_GENRE), expected)


@pytest.mark.parametrize("most", [1, 2, 9])
def test_the_loss_is_that_of_all_antecedents_written_out(most):
    clusters = [1, 0, 2, 1, 2, 1]
    mention = torch.randn(6)
    earlier, there = candidate_antecedents(6, most, mention.device)
    pair = torch.randn(earlier.shape)
    scores = antecedents.antecedent_scores(mention, pair, earlier, there)
    result = antecedents.loss(scores, torch.tensor(clusters), earlier, there)
    expected = 0.0
    for i in range(6):
        worth = {None: 0.0}
        for k in range(min(most, i)):
            j = i - k - 1
            worth[j] = float(mention[i] + mention[j] + pair[i, k])
        true = [j for j in worth if j is not None and clusters[i] and clusters[i] == clusters[j]]
        chance = sum(math.exp(worth[j]) for j in true or [None])
        expected -= math.log(chance / sum(math.exp(value) for value in worth.values()))
    assert_close(result, torch.tensor(expected))


def test_a_single_span_has_only_the_dummy_antecedent():
    earlier, there = candidate_antecedents(1, 5, torch.device("cpu"))
    mention = torch.ones(1, requires_grad=True)
    scores = antecedents.antecedent_scores(mention, torch.zeros(1, 1), earlier, there)
    result = antecedents.loss(scores, torch.tensor([3]), earlier, there)
    result.backward()
    assert result == 0
    assert mention.grad is not None
    assert mention.grad.tolist() == [0.0]


def test_predicted_clusters_follow_the_best_antecedents():
    net = model().requires_grad_(False)
    batch, expected = embedded(TWO), features(TWO, with_gold=False)
    for text, result in zip(net.texts(batch, expected), net.predict(batch, expected), strict=True):
        linked = net.score_antecedents(text)
        places = [
            (r - text.rows[0], c)
            for r, n in zip(text.rows, text.lengths, strict=True)
            for c in range(n)
        ]
        groups = []
        for i, (first, last) in enumerate(linked.spans):
            mention = [*places[first], places[last][1] + 1]
            best = max(range(linked.scores.shape[1]), key=lambda k: float(linked.scores[i, k]))
            groups.append([mention] if best == 0 else groups[i - best])
            if best:
                groups[-1].append(mention)
        distinct = {id(group): group for group in groups if len(group) > 1}
        assert sorted(distinct.values()) == sorted(result)


def test_other_texts_in_the_batch_change_nothing():
    net = model()
    vectors = torch.randn(19, sum(WIDTHS))
    batch = embedded(TWO, vectors)
    together = net.predict(batch, features(TWO, with_gold=False))
    loss = net(batch, features(TWO))
    apart = []
    for one, own in zip(TWO, (vectors[:10], vectors[10:]), strict=True):
        alone = embedded([one], own)
        assert net.predict(alone, features([one], with_gold=False)) == [together[len(apart)]]
        apart.append(net(alone, features([one])))
    assert_close(loss.total, apart[0].total + apart[1].total)
    assert loss.count == apart[0].count + apart[1].count


def test_an_empty_document_has_no_clusters():
    net = model()
    some = [document(), document(3), document()]
    result = net.predict(embedded(some), features(some, with_gold=False))
    assert (result[0], result[2]) == ([], [])
    assert net.predict(embedded([document()]), features([document()], with_gold=False)) == [[]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_supported(dtype):
    net = model().to(dtype).train()
    batch = embedded(TWO)
    batch = batch._replace(vectors=batch.vectors.to(dtype), output_elmo=batch.output_elmo.to(dtype))
    loss = net(batch, features(TWO))
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert len(net.eval().predict(batch, features(TWO, with_gold=False))) == 2


def test_true_mentions_are_kept_in_training_whatever_their_score():
    """So they are learned: none of few spans is a mention of an untrained model."""
    net = model(CorefModelConfig(**{**vars(SMALL), "spans_per_token": 0.01}))
    loss = net(embedded(TWO), features(TWO))
    true = sum(len(cluster) for one in TWO for cluster in one.clusters)
    assert true <= loss.count <= true + len(TWO)


def test_singletons_and_wide_mentions_are_not_gold():
    lone = document(6, clusters=[[(0, 0, 1)], [(0, 2, 3), (0, 0, 6)]])
    assert features([lone])["mentions"].tolist() == [[0, 2, 2, 1], [0, 0, 5, 1]]
    net = model()
    (text,) = net.texts(embedded([lone]), features([lone]))
    assert net._true(text, features([lone])["mentions"].tolist()) == {(2, 2): 1}


def test_training_sees_a_run_of_a_long_document_that_the_seed_draws():
    long = document(*[5] * 40, clusters=[[(row, 0, 1) for row in range(40)]])
    batch, expected = embedded([long]), features([long])
    net = model(max_tokens=22).train()

    def run(seed: int) -> tuple[int, int, int]:
        torch.manual_seed(seed)
        (text,) = net.texts(batch, expected)
        return text.rows.start, text.rows.stop, len(text.states)

    result = {seed: run(seed) for seed in range(60)}
    assert {stop - start for start, stop, _ in result.values()} == {4}  # 20 tokens; 25 are too many
    assert {size for _, _, size in result.values()} == {20}
    assert len({start for start, _, _ in result.values()}) > 20
    assert max(stop for _, stop, _ in result.values()) <= 40
    assert result[7] == run(7)
    (whole,) = net.eval().texts(batch, expected)
    assert len(whole.states) == 200


def test_a_sentence_beyond_all_bounds_is_cut_in_training():
    long = document(50, 3, clusters=[[(0, 0, 1), (0, 45, 46), (1, 0, 1)]])
    net = model(max_tokens=10).train()
    for seed in range(5):
        torch.manual_seed(seed)
        (text,) = net.texts(embedded([long]), features([long]))
        assert len(text.states) in (10, 3)
        assert net(embedded([long]), features([long])).total.isfinite()


@pytest.mark.parametrize("lengths", [[20] * 250, [18] * 250 + [500], [5000]])
def test_a_document_of_5000_tokens_is_read_in_little_memory(lengths):
    long = document(*lengths, clusters=[[(0, 0, 1), (0, 5, 6)]])
    config = CorefModelConfig(
        hidden_dim=8, score_dim=20, feature_dim=4, max_width=10, max_antecedents=50
    )
    net = model(config, max_tokens=300)
    batch = embedded([long])
    with Largest() as largest:
        with torch.no_grad():
            (result,) = net.predict(batch, features([long], with_gold=False))
        loss = net.train()(batch, features([long]))
        loss.total.backward()
    assert all(0 <= row < len(lengths) for cluster in result for row, _, _ in cluster)
    assert loss.count <= 0.4 * 300 + 2
    # 2000 spans kept; all pairs of them would be 4 million, times the width of a span's vector
    assert largest.numel < 2_000_000


def test_genres_are_those_of_the_training_documents():
    task_ = coref("model.use_genre=true")
    documents = [replace(document(2), genre=genre) for genre in ("nw", "", "bn", "nw")]
    labels = task_.collect_labels(documents)
    assert labels == ["bn", "nw"]
    assert coref().collect_labels(documents) == task_.gold_labels(documents[0]) == []
    unseen = replace(document(2), genre="tc")
    numbers = task_.make_features([*documents, unseen], labels, with_gold=False)["genres"]
    assert numbers.tolist() == [2, 0, 1, 2, 0]


def test_the_genre_of_a_document_reaches_its_pairs_and_no_other():
    net = CorefHead(replace(SMALL, use_genre=True), WIDTHS, 1000, num_genres=2).eval()
    batch, given = embedded(TWO), features(TWO)
    results = []
    for genres in ([1, 1], [1, 2]):
        given["genres"] = torch.tensor(genres)
        results.append([net.score_antecedents(text).scores for text in net.texts(batch, given)])
    assert torch.equal(results[0][0], results[1][0])
    assert not torch.equal(results[0][1], results[1][1])


def test_sizes_that_make_no_sense_are_refused():
    for setting, message in (
        ("model.max_width=0", r"model\.max_width must be at least 1, found 0"),
        ("model.dropout=1", r"model\.dropout must be from 0 to below 1, found 1"),
        ("model.spans_per_token=0", r"model\.spans_per_token must be above 0"),
        ("data.max_tokens=0", r"data\.max_tokens must be at least 1, found 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            coref(setting)


def test_a_prediction_is_formatted_on_one_line_and_as_json():
    some = Document([["Ann", "'s", "dog", "left", "."], ["She", "saw", "it"]], ["", ""], [])
    result = [[[0, 0, 3], [1, 2, 3]], [[0, 0, 2], [1, 0, 1]]]
    task_ = coref()
    assert task_.format_text(some, result) == "[[Ann 's 1] dog 2] left . [She 1] saw [it 2]"
    told = task_.to_dict(some, result)
    assert told["sentences"] == some.sentences
    assert told["clusters"][0] == [
        {"sentence": 0, "start": 0, "end": 2, "text": "Ann 's"},
        {"sentence": 1, "start": 0, "end": 1, "text": "She"},
    ]


def test_predictions_are_written_as_the_reference_scorer_reads_them():
    some = Document([["Ann", "Lee"], ["She"]], ["Bo", ""], [], "d", 2)
    lines = list(coref().prediction_lines([some], [[[[0, 0, 2], [1, 0, 1]]]]))
    assert lines == [
        "#begin document (d); part 002",
        "d\t2\t0\tAnn\t-\t*\t-\t-\t-\tBo\t*\t(1",
        "d\t2\t1\tLee\t-\t*\t-\t-\t-\tBo\t*\t1)",
        "",
        "d\t2\t0\tShe\t-\t*\t-\t-\t-\t-\t*\t(1)",
        "",
        "#end document",
    ]


def test_raw_text_is_cut_into_sentences_and_tokens():
    pytest.importorskip("sentencex")
    made = coref().example_from_text("Ann left. She\nsaw it.\n\nBo did, too.")
    ann, she, bo = ["Ann", "left", "."], ["She", "saw", "it", "."], ["Bo", "did", ",", "too", "."]
    assert made.sentences == [ann, she, bo]
    assert made.speakers == ["", "", ""]
    assert coref().example_from_text("  ").sentences == []


def test_a_line_of_tokens_is_a_sentence_and_a_tab_ends_its_speaker():
    made = coref().example_from_text("Mr. Lee left\nAnn Lee\tI did not !\n\n ?\n", tokenized=True)
    assert made.sentences == [["Mr.", "Lee", "left"], ["I", "did", "not", "!"], ["?"]]
    assert made.speakers == ["", "Ann Lee", ""]
    assert coref().example_from_text("  ", tokenized=True).sentences == []


def test_scores_leave_out_what_is_mentioned_once():
    gold = document(4, clusters=[[(0, 0, 1), (0, 2, 3)], [(0, 1, 2)]])
    assert coref().score([gold], [[[[0, 0, 1], [0, 2, 3]]]])["average"] == 100
    np.testing.assert_equal(coref().score([gold], [[]])["average"], 0.0)


def test_a_document_without_words_adds_no_loss():
    whole, empty = document(3, 2, clusters=[[(0, 0, 1), (1, 0, 1)]]), document()
    vectors = torch.randn(5, sum(WIDTHS))
    net = model()
    alone = net(embedded([whole], vectors), features([whole]))
    both = net(embedded([whole, empty], vectors), features([whole, empty]))
    assert_close(both.total, alone.total)
    assert both.count == alone.count
