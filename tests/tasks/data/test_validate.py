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
    found = validate.validate_files(
        kind(registry.load_recipe(kind, None, more)), files, embedder=embedder
    )
    return {(finding.split, finding.what): finding for finding in found}


ANN = "Ann\tB-person\nleft\tO\n\n"
BO = "Bo\tB-person\nleft\tO\n\n"


def test_examples_tokens_and_labels_are_counted(tmp_path):
    found = findings(tmp_path, ANN + BO + "Rome\tB-place\n.\tO\nNow\tO\n", BO, embedder="elmo:")
    assert found["train", "examples"].found == "3"
    assert found["train", "tokens"].found == "7"
    assert found["train", "longest sentence"].found == "3 tokens, in example 3"
    assert found["train", "labels"].found == "3: O 4, B-person 2, B-place 1"
    assert not any(finding.suspicious for (split, _), finding in found.items() if split == "train")


def test_texts_of_dev_that_are_in_train_are_a_leak(tmp_path):
    found = findings(tmp_path, ANN, BO + ANN)["dev", "texts that are in train"]
    assert (found.found, found.suspicious) == ("1 (50.0 %), first example 2", True)
    found = findings(tmp_path, ANN, BO)["dev", "texts that are in train"]
    assert (found.found, found.suspicious) == ("none", False)


def test_repeated_examples_are_counted_and_the_same_words_otherwise_labelled_are_none(tmp_path):
    found = findings(tmp_path, ANN * 3 + ANN.replace("person", "place"), BO)
    assert found["train", "repeated examples"].found == "2 (50.0 %)"
    assert found["train", "repeated examples"].suspicious


def test_a_label_that_train_has_not_is_named(tmp_path):
    found = findings(tmp_path, ANN, ANN + "Rome\tB-place\nX\tB-place\n")
    assert found["dev", "labels that are not in train"].found == "1, first B-place in example 2"
    assert found["dev", "labels that are not in train"].suspicious
    assert ("train", "labels that are not in train") not in found


def test_a_file_with_a_single_label_is_suspicious(tmp_path):
    assert findings(tmp_path, "a\tO\n", "a\tO\n")["train", "labels"].suspicious


def test_very_long_sentences_are_suspicious(tmp_path):
    found = findings(tmp_path, ANN + "a\tO\n" * 401, ANN)
    assert found["train", "longest sentence"].found == "401 tokens, in example 2"
    assert found["train", "longest sentence"].suspicious


def test_words_without_a_vector_are_counted(tmp_path, vectors):
    found = findings(
        tmp_path, ANN + "Bo\tO\nBo\tO\n\n", "Rome\tO\n", embedder=f"glove:{vectors}+elmo:"
    )
    assert found["train", "words without a vector"].found == "50.0 %, such as Bo"
    assert found["train", "words without a vector"].suspicious
    assert found["dev", "words without a vector"].found == "none"


def test_without_vectors_words_are_known_from_training(tmp_path):
    found = findings(tmp_path, ANN + ANN, ANN + "Rome\tO\nleft\tO\n")
    assert found["dev", "words too rare in train"].found == "25.0 %, such as Rome"
    found = findings(tmp_path, ANN, BO, embedder="elmo:")
    assert not any("words" in what for _, what in found)


def test_empty_examples_are_counted(tmp_path, monkeypatch):
    from elmore.tasks.data.columns import TaggedSentence

    read = registry.find_task("ner").read_examples
    monkeypatch.setattr(
        registry.find_task("ner"),
        "read_examples",
        lambda self, path: [*read(self, path), TaggedSentence([], [])],
    )
    found = findings(tmp_path, ANN, BO)["train", "empty examples"]
    assert (found.found, found.suspicious) == ("1 (50.0 %)", True)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_validated(tmp_path, name):
    text = toy_tasks.write(name, tmp_path / "text").read_text()
    found = findings(tmp_path, text, text, name=name)
    assert found["train", "examples"].found == ("2" if name == "coref" else "20")
    assert found["train", "repeated examples"].found == "none"
    assert found["dev", "texts that are in train"].suspicious


def test_a_bad_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="dev:1: expected O or a tag"):
        findings(tmp_path, ANN, "a\tb\n")
    with pytest.raises(DataError, match="dev: no sentence found"):
        findings(tmp_path, ANN, "")
