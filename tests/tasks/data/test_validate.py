import pytest

from elmore.errors import DataError
from elmore.tasks import registry
from elmore.tasks.data import validate
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks


def findings(tmp_path, train: str, dev: str, *, name="ner", embedder="none", more=()):
    kind = registry.find_task(name)
    for split, text in (("train", train), ("dev", dev)):
        (tmp_path / split).write_text(text)
    files = {"train": tmp_path / "train", "dev": tmp_path / "dev"}
    result = validate.validate_files(
        kind(registry.load_recipe(kind, None, more)), files, embedder=embedder
    )
    return {(finding.split, finding.what): finding for finding in result}


ANN = "Ann\tB-person\nleft\tO\n\n"
BO = "Bo\tB-person\nleft\tO\n\n"


def test_examples_tokens_and_labels_are_counted(tmp_path):
    result = findings(tmp_path, ANN + BO + "Rome\tB-place\n.\tO\nNow\tO\n", BO, embedder="elmo:")
    assert result["train", "examples"].found == "3"
    assert result["train", "tokens"].found == "7"
    assert result["train", "longest sentence"].found == "3 tokens, in example 3"
    assert result["train", "labels"].found == "3: O 4, B-person 2, B-place 1"
    assert not any(finding.suspicious for (split, _), finding in result.items() if split == "train")


def test_texts_of_dev_that_are_in_train_are_a_leak(tmp_path):
    result = findings(tmp_path, ANN, BO + ANN)["dev", "texts that are in train"]
    assert (result.found, result.suspicious) == ("1 (50.0 %), first example 2", True)
    result = findings(tmp_path, ANN, BO)["dev", "texts that are in train"]
    assert (result.found, result.suspicious) == ("none", False)


def test_repeated_examples_are_counted_and_the_same_words_otherwise_labelled_are_none(tmp_path):
    result = findings(tmp_path, ANN * 3 + ANN.replace("person", "place"), BO)
    assert result["train", "repeated examples"].found == "2 (50.0 %)"
    assert result["train", "repeated examples"].suspicious


def test_a_label_that_train_has_not_is_named(tmp_path):
    result = findings(tmp_path, ANN, ANN + "Rome\tB-place\nX\tB-place\n")
    assert result["dev", "labels that are not in train"].found == "1, first B-place in example 2"
    assert result["dev", "labels that are not in train"].suspicious
    assert ("train", "labels that are not in train") not in result


def test_a_file_with_a_single_label_is_suspicious(tmp_path):
    assert findings(tmp_path, "a\tO\n", "a\tO\n")["train", "labels"].suspicious


def test_very_long_sentences_are_suspicious(tmp_path):
    result = findings(tmp_path, ANN + "a\tO\n" * 401, ANN)
    assert result["train", "longest sentence"].found == "401 tokens, in example 2"
    assert result["train", "longest sentence"].suspicious


def test_words_without_a_vector_are_counted(tmp_path, vectors):
    result = findings(
        tmp_path, ANN + "Bo\tO\nBo\tO\n\n", "Rome\tO\n", embedder=f"glove:{vectors}+elmo:"
    )
    assert result["train", "words without a vector"].found == "50.0 %, such as Bo"
    assert result["train", "words without a vector"].suspicious
    assert result["dev", "words without a vector"].found == "none"


def test_without_vectors_words_are_known_from_training(tmp_path):
    result = findings(tmp_path, ANN + ANN, ANN + "Rome\tO\nleft\tO\n")
    assert result["dev", "words too rare in train"].found == "25.0 %, such as Rome"
    result = findings(tmp_path, ANN, BO, embedder="elmo:")
    assert not any("words" in what for _, what in result)


def test_empty_examples_are_counted(tmp_path, monkeypatch):
    from elmore.tasks.data.columns import TaggedSentence

    read = registry.find_task("ner").read_examples
    monkeypatch.setattr(
        registry.find_task("ner"),
        "read_examples",
        lambda self, path: [*read(self, path), TaggedSentence([], [])],
    )
    result = findings(tmp_path, ANN, BO)["train", "empty examples"]
    assert (result.found, result.suspicious) == ("1 (50.0 %)", True)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_validated(tmp_path, name):
    text = toy_tasks.write(name, tmp_path / "text").read_text()
    result = findings(tmp_path, text, text, name=name)
    assert result["train", "examples"].found == ("2" if name == "coref" else "20")
    assert result["train", "repeated examples"].found == "none"
    assert result["dev", "texts that are in train"].suspicious


def test_a_bad_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="dev:1: expected O or a tag"):
        findings(tmp_path, ANN, "a\tb\n")
    with pytest.raises(DataError, match="dev: no sentence found"):
        findings(tmp_path, ANN, "")
