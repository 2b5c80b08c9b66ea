"""ElmoVectorizer among scikit-learn's own parts, and under its own checks."""

import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.errors import ConfigError, DataError, WeightsError
from elmore.tasks.sst import data
from tests.support import doc_blocks, tiny_model
from tests.support.sweeps import pick
from tests.support.toy_pooling import make_pooling

pytest.importorskip("sklearn", reason="scikit-learn is not installed: make test-integrations")

import joblib
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from elmore.integrations.sklearn import ElmoVectorizer

TEXTS = ["I left it at the bank.", "A naïve 日本 word", "", "One.", "The play was sold out. Pity."]
LABELS = ["a", "b", "a", "b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return tiny_model.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def elmo(folder):
    return elmore.load(folder)


class ColumnsOfNumbers(ElmoVectorizer):
    """Reads numbers as they are written, so that scikit-learn's checks have something to give."""

    def _columns(self, X, *, reset):
        return [[str(x) for x in column] for column in validate_data(self, X, reset=reset).T]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = False
        return tags


GIVE_NUMBERS = {  # in a table; numbers are refused, as they are no text
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_pipeline_consistency",
    "check_estimators_nan_inf",
    "check_estimator_sparse_array",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_fit2d_predict1d",
}


@parametrize_with_checks([ElmoVectorizer()])
def test_it_keeps_the_conventions_that_can_be_checked_without_texts(estimator, check, folder):
    estimator = clone(estimator).set_params(model=folder)
    if check.func.__name__ in GIVE_NUMBERS:
        # Not as an expected failure: pytest would take half a second each to show where it was.
        with pytest.raises((DataError, AssertionError, IndexError, ValueError)):
            check(estimator)
    else:
        check(estimator)


@parametrize_with_checks([*pick([], [ColumnsOfNumbers()]), ColumnsOfNumbers(pool="learned")])
def test_it_keeps_all_conventions_once_numbers_are_written_out(estimator, check, folder):
    learned, name = estimator.pool == "learned", check.func.__name__
    estimator = clone(estimator).set_params(model=folder)
    if learned and name == "check_fit2d_1sample":
        with pytest.raises(AssertionError, match="a pooling needs at least 2 texts"):
            check(estimator)
    else:
        check(estimator)


@pytest.mark.parametrize("layers", ["average", "top", 1])
@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("count", [1, 30])  # of the texts: few go another way than many
def test_vectors_are_those_of_the_embedder(folder, elmo, layers, pool, count):
    texts = TEXTS * count
    result = ElmoVectorizer(folder, layers=layers, pool=pool).fit_transform(texts)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, elmo.encode(texts, layers=layers, pool=pool), atol=1e-5)


def test_all_layers_stand_side_by_side(folder, elmo):
    result = ElmoVectorizer(folder, layers="all").fit(TEXTS).transform(TEXTS)
    expected = np.hstack([elmo.encode(TEXTS, layers=layer) for layer in range(3)])
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_pooling_is_learned_from_the_texts_of_fit(folder, elmo):
    vectorizer = ElmoVectorizer(folder, pool="learned", remove=1)
    result = vectorizer.fit_transform(TEXTS)
    pool = elmo.learn_pooling(TEXTS, remove=1)
    np.testing.assert_allclose(result, elmo.encode(TEXTS, pool=pool), atol=1e-5)
    new = ["Something else."]
    np.testing.assert_allclose(vectorizer.transform(new), elmo.encode(new, pool=pool), atol=1e-5)
    np.testing.assert_allclose(clone(vectorizer).fit(TEXTS).transform(TEXTS), result, atol=1e-5)


def test_sentences_may_run_on_their_own(folder, elmo):
    pytest.importorskip("sentencex")
    result = ElmoVectorizer(folder, split_sentences=True).fit_transform(TEXTS[4:])
    (sentence,) = elmo.embed(TEXTS[4:], split_sentences=True)
    np.testing.assert_allclose(result[0], sentence.vectors.mean(axis=0), atol=1e-5)


def test_texts_come_in_any_shape_that_holds_strings(folder, elmo):
    expected = elmo.encode(TEXTS)
    vectorizer = ElmoVectorizer(folder).fit(TEXTS)
    for texts in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object)):
        np.testing.assert_allclose(vectorizer.transform(texts), expected, atol=1e-5)
    column = np.array(TEXTS)[:, None]
    np.testing.assert_allclose(vectorizer.transform(column), expected, atol=1e-5)
    tokens = [["a", "list"], ["of", "tokens"]]
    np.testing.assert_allclose(vectorizer.transform(tokens), elmo.encode(tokens), atol=1e-5)
    assert vectorizer.transform([]).shape == (0, elmo.width)


def test_columns_of_a_table_stand_side_by_side(folder, elmo):
    table = np.array([TEXTS, TEXTS[::-1]]).T
    vectorizer = ElmoVectorizer(folder)
    expected = np.hstack([elmo.encode(TEXTS), elmo.encode(TEXTS[::-1])])
    np.testing.assert_allclose(vectorizer.fit_transform(table), expected, atol=1e-5)
    names = vectorizer.get_feature_names_out()
    assert list(names[:2]) == ["elmovectorizer0", "elmovectorizer1"]
    assert len(names) == expected.shape[1]
    with pytest.raises(DataError, match="fitted on 2 columns of texts, found 1"):
        vectorizer.transform(TEXTS)


def test_frames_go_in_and_come_out(folder, elmo):
    pandas = pytest.importorskip("pandas", reason="`make test-integrations` installs pandas")
    frame = pandas.DataFrame({"text": TEXTS, "stars": range(len(TEXTS))}, index=list("abcde"))
    vectorizer = ElmoVectorizer(folder).set_output(transform="pandas")
    result = clone(vectorizer).fit_transform(frame["text"])  # a clone keeps the wish
    assert list(result.index) == list(frame.index)
    np.testing.assert_allclose(result.to_numpy(), elmo.encode(TEXTS), atol=1e-5)
    for column in ("text", ["text"]):
        both = ColumnTransformer(
            [("words", vectorizer, column), ("rest", "passthrough", ["stars"])]
        )
        both.set_output(transform="pandas")
        assert both.fit_transform(frame).shape == (len(TEXTS), elmo.width + 1)
    with pytest.raises(DataError, match=r"text 1 is .*missing"):
        vectorizer.fit(pandas.Series(["one", None]))


def test_a_column_transformer_takes_a_column_of_an_array(folder, elmo):
    table = np.array([TEXTS, ["x"] * 5], dtype=object).T
    for column in (0, [0]):
        result = ColumnTransformer([("words", ElmoVectorizer(folder), column)]).fit_transform(table)
        np.testing.assert_allclose(result, elmo.encode(TEXTS), atol=1e-5)


def test_a_grid_is_searched_by_two_processes(folder):
    texts, labels = TEXTS[:4] * 4, LABELS * 4
    chain = make_pipeline(ElmoVectorizer(folder), StandardScaler(), LogisticRegression())
    grid = {
        "elmovectorizer__layers": ["average", 1],
        "elmovectorizer__pool": ["mean", "learned"],
    }
    search = GridSearchCV(chain, grid, cv=2, n_jobs=2, error_score="raise").fit(texts, labels)
    assert search.best_score_ == 1.0
    assert list(search.predict(TEXTS[:4])) == LABELS


def test_a_pickle_leaves_the_weights_out_and_finds_them_again(tmp_path):
    path = tiny_model.save_model(tmp_path / "model")
    fitted = make_pipeline(ElmoVectorizer(path), LogisticRegression()).fit(TEXTS[:4], LABELS)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    weights = Path(path, "model.safetensors").stat().st_size
    assert len(pickle.dumps(fitted[0])) < weights / 4
    loaded = joblib.load(tmp_path / "fitted.joblib")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    shutil.rmtree(path)
    tiny_model.save_model(tmp_path / "model", seed=1)
    with pytest.raises(WeightsError, match="was fitted with other weights"):
        joblib.load(tmp_path / "fitted.joblib").predict(TEXTS)


def test_a_folder_named_like_the_bundled_model_is_not_taken_for_it(tmp_path, monkeypatch):
    (tmp_path / "english").mkdir()
    (tmp_path / "english" / "text.txt").write_text("of somebody")
    monkeypatch.chdir(tmp_path)
    expected = elmore.load().encode(TEXTS, pool="mean")
    np.testing.assert_allclose(ElmoVectorizer().fit_transform(TEXTS), expected, atol=1e-5)


def test_an_embedder_is_shared_by_clones(elmo):
    vectorizer = ElmoVectorizer(elmo).fit(TEXTS)
    copy = clone(vectorizer)
    assert copy.model is elmo
    with pytest.raises(NotFittedError):
        copy.transform(TEXTS)
    again = pickle.loads(pickle.dumps(vectorizer))
    np.testing.assert_array_equal(again.transform(TEXTS), vectorizer.transform(TEXTS))


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ("one text", r"pass \['one text'\] for one"),
        (["one", None], "text 1 is None; expected a string"),
        ([1.5], "text 0 is 1.5"),
        (np.array([1.5]), "text 0 is "),
        ([["a", 2]], "expected tokens that are strings, found 2"),
    ],
)
def test_a_value_that_is_not_text_is_refused_in_one_sentence(folder, texts, sentence):
    with pytest.raises(DataError, match=sentence):
        ElmoVectorizer(folder).fit_transform(texts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": 3},
        {"layers": "best"},
        {"layers": "whitened"},  # this model has no whitening
        {"pool": "median"},
        {"precision": "exakt"},
    ],
)
def test_invalid_settings_are_refused_by_fit(folder, wrong):
    with pytest.raises(ConfigError, match=re.escape(str(*wrong.values()))):
        ElmoVectorizer(folder, **wrong).fit(TEXTS)


def test_a_pooling_of_another_width_is_refused_by_fit(folder, elmo):
    pool = make_pooling(elmo)  # it takes all layers
    with pytest.raises(DataError, match="learned for width"):
        ElmoVectorizer(folder, pool=pool).fit(TEXTS)
    assert ElmoVectorizer(folder, layers="all", pool=pool).fit_transform(TEXTS).shape[1] == 3


def test_sentiment_is_classified_better_than_by_word_counts():
    """Films of the Stanford Sentiment Treebank, from 300 sentences."""
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: the sentences about films are not here")
    path = Path(os.environ["ELMORE_DATA"]) / "tasks/sst"
    train, test = (
        [read[i] for i in range(0, len(read), len(read) // 300)][:300]
        for read in (
            data.read_trees(path / f"{part}.txt.xz", classes=2) for part in ("train", "test")
        )
    )

    def score(*steps) -> float:
        sides = [
            ([" ".join(s.tokens) for s in part], [s.label for s in part]) for part in (train, test)
        ]
        return make_pipeline(*steps).fit(*sides[0]).score(*sides[1])

    words = score(TfidfVectorizer(), LogisticRegression())
    vectors = ElmoVectorizer(precision="fast")
    elmo = score(vectors, StandardScaler(), LogisticRegression(C=0.01))
    assert elmo > words + 0.02
    page = (doc_blocks.INTEGRATIONS / "scikit-learn.md").read_text(encoding="utf-8")
    told = [int(percent) / 100 for percent in re.findall(r"in (\d+) %", page)]
    assert [elmo, words] == pytest.approx(told, abs=0.03)


def test_cross_validation_is_one_line(folder):
    chain = make_pipeline(ElmoVectorizer(folder), LogisticRegression())
    assert len(cross_val_score(chain, TEXTS[:4] * 3, LABELS * 3, cv=3)) == 3


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("scikit-learn.md"))
def test_the_page_runs(block):
    doc_blocks.run_block(block)
