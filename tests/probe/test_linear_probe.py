"""The probe: what it must learn, what it must not, and what its numbers mean."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elmore
from elmore.probe import linear_probe
from elmore.probe.linear_probe import Examples, LayerScores, Splits, fit_classifier
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.word_vectors import WordVectors
from elmore.weights import folder
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

TAG = {"the": "DT", "a": "DT", "cat": "NN", "dog": "NN", "sleeps": "VBZ", "runs": "VBZ"}


def clusters(size, rng, noise=0.1):
    """Points around the corners of a triangle, in the plane and one dimension that never varies."""
    corners = np.array([[0.0, 0.0, 7.0], [1.0, 0.0, 7.0], [0.0, 1.0, 7.0]])
    which = np.arange(size) % 3
    spread = noise * rng.uniform(-1, 1, (size, 3)) * [1, 1, 0]
    return Examples((corners[which] + spread).astype(np.float16), ["abc"[i] for i in which])


def tagged(*sentences):
    return [
        TaggedSentence(line.split(), [TAG[word] for word in line.split()]) for line in sentences
    ]


SPLITS = Splits(
    tagged("the cat sleeps", "a dog runs", "the dog sleeps", "a cat runs"),
    tagged("the dog runs"),
    tagged("a cat sleeps", "a dog sleeps"),
)


def test_linearly_separable_classes_are_all_predicted(rng):
    assert fit_classifier(clusters(300, rng), clusters(60, rng), clusters(60, rng)).test == 1.0


def test_labels_unrelated_to_the_vectors_stay_near_the_majority_baseline(rng):
    def noise(size):
        labels = rng.choice(["common", "rare"], size=size, p=[0.8, 0.2])
        return Examples(rng.normal(size=(size, 4)).astype(np.float32), labels.tolist())

    train, dev, test = noise(3000), noise(1000), noise(1000)
    majority = test.labels.count("common") / 1000
    assert fit_classifier(train, dev, test).test == pytest.approx(majority, abs=0.02)


def test_random_tags_of_unseen_words_are_not_predicted(rng):
    """Each word is a vector of its own: what the control learns by heart ends with the text."""

    def text(first):
        words = [f"w{first + i}" for i in range(300)]
        return [TaggedSentence(words, ["NN" if i % 4 else "VB" for i in range(300)])]

    data = Splits(text(0), text(1000), text(2000))
    layers = {"words": [rng.normal(size=(300, 100)).astype(np.float32) for _ in data]}
    (result,) = linear_probe.probe_layers(data, layers)
    assert result.control is not None
    assert result.control < 0.80  # three of four words are nouns


def test_the_same_seed_gives_the_same_scores(rng):
    splits = [clusters(size, rng, noise=2.0) for size in (300, 90, 90)]
    assert fit_classifier(*splits, seed=3) == fit_classifier(*splits, seed=3)


def test_accuracy_is_the_fraction_of_correct_tokens(rng):
    train, dev = clusters(300, rng), clusters(60, rng)
    points = np.array([[0, 0, 7], [0, 0, 7], [1, 0, 7], [0, 1, 7]], np.float16)
    test = Examples(points, ["a", "b", "b", "c"])  # the second is labelled as another corner is
    assert fit_classifier(train, dev, test).test == 3 / 4
    assert fit_classifier(train, test, dev).dev == 3 / 4


def test_a_label_that_training_never_had_is_wrong(rng):
    train, dev = clusters(300, rng), clusters(60, rng)
    test = Examples(dev.vectors, ["new" if label == "c" else label for label in dev.labels])
    assert fit_classifier(train, dev, test).test == 2 / 3
    assert fit_classifier(train, test, dev).dev == 2 / 3


def test_a_dimension_that_never_varies_in_training_counts_for_nothing(rng):
    train, dev, test = clusters(300, rng), clusters(60, rng), clusters(60, rng)
    test.vectors[:, 2] = -1000
    assert fit_classifier(train, dev, test).test == 1.0


def test_the_scale_of_the_vectors_does_not_matter(rng):
    splits = [clusters(size, rng) for size in (300, 60, 60)]
    large = [Examples(1000 * one.vectors.astype(np.float32) - 5, one.labels) for one in splits]
    assert fit_classifier(*large).test == 1.0


@given(seed=st.integers(0, 1000))
def test_a_control_tag_belongs_to_the_word_and_comes_from_the_training_tags(seed):
    tag_of = {}
    for split, tags in zip(SPLITS, SPLITS.control_tags(seed), strict=True):
        words = [word for sentence in split for word in sentence.tokens]
        for word, tag in zip(words, tags, strict=True):
            assert tag_of.setdefault(word, tag) == tag
    assert set(tag_of) == set(TAG)
    assert set(tag_of.values()) <= set(TAG.values())


def test_control_tags_are_drawn_as_often_as_the_training_text_has_them():
    words = [f"w{i}" for i in range(4000)]
    train = [TaggedSentence(words, ["NN"] * 3000 + ["VB"] * 1000)]
    drawn, *_ = Splits(train, train, train).control_tags(0)
    assert drawn.count("NN") / 4000 == pytest.approx(3 / 4, abs=0.03)
    assert drawn != Splits(train, train, train).control_tags(1)[0]


def test_selectivity_is_what_the_true_tags_have_over_the_random_ones():
    assert LayerScores("1", test=0.9, dev=0.8, control=0.6).selectivity == pytest.approx(0.3)
    assert LayerScores("1", test=0.9, dev=0.8).selectivity is None


def test_word_vectors_are_looked_up_in_lower_case_and_unknown_words_are_zero():
    vectors = WordVectors({"the": 0, "cat": 1}, np.array([[1, 2], [3, 4]], np.float32))
    train = [TaggedSentence(["The", "cat"], ["DT", "NN"]), TaggedSentence(["zyx"], ["NN"])]
    result = linear_probe.word_vector_features(Splits(train, train[:1], train[1:]), vectors)[
        "words"
    ]
    assert [one.tolist() for one in result] == [
        [[1, 2], [3, 4], [0, 0]],
        [[1, 2], [3, 4]],
        [[0, 0]],
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    settings = bilm_options(dim=12, projection_dim=4)
    weights = bilm_weights(settings, np.random.default_rng(0))
    folder.save(elmore.load(*write_bilm(path, settings, weights)).bundle, path / "ours")
    return str(path / "ours")


def test_the_layers_of_a_model_are_its_vectors_and_their_average(model):
    elmo = elmore.load(model)
    layers = linear_probe.layer_features(SPLITS, elmo)
    assert list(layers) == ["0", "1", "2", "average"]
    for name, number in (("0", 0), ("2", 2), ("average", "average")):
        for split, result in zip(SPLITS, layers[name], strict=True):
            sentences = elmo.embed([one.tokens for one in split], layers=number)
            expected = np.concatenate([sentence.vectors for sentence in sentences])
            np.testing.assert_allclose(result, expected, rtol=2e-3, atol=1e-4)
    (alone,) = linear_probe.layer_features(SPLITS, elmo, "2").items()
    assert alone[0] == "2"
    np.testing.assert_array_equal(alone[1][0], layers["2"][0])


def write(path: Path, sentences, column=4):
    """Write CoNLL-U with tags in one column."""
    with path.open("w") as file:
        for sentence in sentences:
            for number, (word, tag) in enumerate(zip(sentence.tokens, sentence.tags, strict=True)):
                fields = [str(number + 1), word, *"_" * 8]
                fields[column] = tag
                file.write("\t".join(fields) + "\n")
            file.write("\n")


@pytest.fixture
def files(tmp_path):
    for name, split in zip(SPLITS._fields, SPLITS, strict=True):
        write(tmp_path / f"{name}.conllu", split)
    return [f"--{name}={tmp_path}/{name}.conllu" for name in SPLITS._fields]


def test_the_command_prints_a_row_for_each_layer(files, model):
    done = run_elmore("probe", "pos", *files, "--model", model)
    assert done.code == 0, done.err
    header, *rows = [line.split("\t") for line in done.out.splitlines()]
    assert header == ["layer", "test", "dev", "control", "selectivity"]
    assert [row[0] for row in rows] == ["0", "1", "2", "average"]
    assert rows[0][1] == "100.00"  # the token layer: each word of the test was in training
    for row in rows:
        test, _, control, selectivity = map(float, row[1:])
        assert selectivity == pytest.approx(test - control, abs=0.011)


def test_the_command_gives_numbers_as_json_and_one_layer_if_asked(files, model):
    arguments = ["probe", "pos", *files, "--model", model, "--layers=1", "--no-control", "--json"]
    done = run_elmore(*arguments)
    assert json.loads(done.out) == [{"layer": "1", "test": 1.0, "dev": 1.0}]
    assert run_elmore(*arguments) == done


def test_word_vectors_go_through_the_same_probe(files, tmp_path):
    lines = [f"{word} {i % 2} {i // 2}" for i, word in enumerate(TAG)]
    (tmp_path / "words.txt").write_text("\n".join(lines) + "\n")
    done = run_elmore("probe", "pos", *files, f"--vectors=glove:{tmp_path}/words.txt", "--json")
    (row,) = json.loads(done.out)
    assert (row["layer"], row["test"]) == ("words", 1.0)
    assert row["selectivity"] == pytest.approx(row["test"] - row["control"])


def refused(*arguments):
    done = run_elmore("probe", "pos", *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("elmore: ")
    assert done.err.count("\n") == 1
    return done.err


def test_a_file_without_tags_in_that_column_is_refused(files):
    assert "has no upos tag" in refused(*files, "--column", "upos")


def test_an_empty_file_and_a_missing_one_are_refused(files, tmp_path):
    (tmp_path / "dev.conllu").write_text("")
    assert "dev.conllu" in refused(*files)
    (tmp_path / "dev.conllu").unlink()
    assert "dev.conllu: cannot be read" in refused(*files)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--layers", "3"], "this model has layers 0 to 2"),
        (["--layers", "lowest"], "'lowest': expected"),
        (["--vectors", "glove:x.txt"], "replaces the model"),
        (["--device", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_invalid_options_are_refused(files, model, arguments, sentence):
    assert sentence in refused(*files, "--model", model, *arguments)


def test_a_negative_seed_is_a_usage_error(files, model):
    assert run_elmore("probe", "pos", *files, "--model", model, "--seed", "-1").code == 2


@pytest.mark.parametrize("vectors", ["", "x.txt", "glove:", "elmo:x"])
def test_vectors_are_named_by_their_kind_and_file(files, vectors):
    assert "expected glove:FILE" in refused(*files, "--vectors", vectors)
