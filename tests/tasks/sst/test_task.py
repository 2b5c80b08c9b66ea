from elmore.tasks import registry
from tests.support import toy_tasks


def sst(*overrides: str):
    kind = registry.find_task("sst")
    return kind(registry.load_recipe(kind, None, overrides))


def test_phrases_are_trained_on_but_never_scored(tmp_path):
    path = toy_tasks.write("sst", tmp_path / "trees.txt", 5)
    sentences = sst().read_examples(path)
    assert sst("data.phrases=false").training_examples(sentences) == sentences
    more = sst("data.phrases=true")
    assert more.read_examples(path) == sentences
    result = more.training_examples(sentences)
    assert [e.tokens for e in result[:5]] == [e.tokens for e in sentences]
    assert ["Ann"] in [e.tokens for e in result[5:]]


def test_the_labels_are_all_there_are_whatever_was_read():
    assert sst().collect_labels([]) == [
        "very negative",
        "negative",
        "neutral",
        "positive",
        "very positive",
    ]
    assert sst("data.classes=2").collect_labels([]) == ["negative", "positive"]


def test_a_prediction_is_shown_in_words_and_given_as_the_number_of_the_treebank():
    example = sst().example_from_text("It works .", tokenized=True)
    assert sst().format_text(example, "very positive") == "very positive\tIt works ."
    assert sst().to_dict(example, "very positive") == {
        "tokens": ["It", "works", "."],
        "label": "very positive",
        "number": 4,
    }
    assert sst("data.classes=2").to_dict(example, "positive")["number"] == 1
