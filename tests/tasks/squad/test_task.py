import json

import pytest

from elmore.embed.jobs import layer_cache
from elmore.embed.loading import load
from elmore.errors import DataError
from elmore.tasks import registry
from elmore.tasks.squad.data import read_squad
from elmore.tasks.train import train
from tests.support import toy_tasks
from tests.tasks.squad.examples import text


def squad(*overrides: str):
    kind = registry.find_task("squad")
    return kind(registry.load_recipe(kind, None, list(overrides)))


def test_a_typed_line_is_question_tab_passage():
    asked = squad().example_from_text("Who left?\tAnn left.\tBo stayed.", tokenized=True)
    assert squad().sentences(asked) == [["Ann", "left.", "Bo", "stayed."], ["Who", "left?"]]
    assert asked.passage.text == "Ann left.\tBo stayed."


def test_a_passage_is_split_into_sentences_if_the_recipe_asks():
    split = squad("data.split_sentences=true")
    asked = split.example_from_text('Who left?\tAnn Lee left. Bo saw "her." He\n\nstayed')
    assert split.sentences(asked) == [
        ["Ann", "Lee", "left", "."],
        ["Bo", "saw", '"', "her", ".", '"'],
        ["He"],
        ["stayed"],
        ["Who", "left", "?"],
    ]
    assert split.length(asked) == squad().length(asked) == len(squad().sentences(asked)[0]) == 12
    assert split.make_features([asked, asked], [], with_gold=False)["rows"].tolist() == [5, 5]


@pytest.mark.parametrize("line", ["Who left? Ann left.", "Who left?\t", "\tAnn left.", " \t ", ""])
def test_a_line_without_both_is_refused(line):
    with pytest.raises(DataError, match=r"^expected a question, a tab and the passage"):
        squad().example_from_text(line, tokenized=True)


def test_an_answer_is_shown_on_a_line_and_given_as_it_is_written(tmp_path):
    path = tmp_path / "q.jsonl"
    answer = {"answer": "Ann\n Lee", "answer_start": 0}
    path.write_text(json.dumps({"id": "7", "context": "Ann\n Lee ran", "question": "?", **answer}))
    (asked,) = read_squad(path)
    assert squad().format_text(asked, [0, 1]) == "Ann Lee"
    assert squad().to_dict(asked, [0, 1]) == {
        "id": "7",
        "question": "?",
        "answer": "Ann\n Lee",
        "start": 0,
        "end": 8,
    }
    typed = squad().example_from_text("?\tAnn ran", tokenized=True)
    assert "id" not in squad().to_dict(typed, [0, 0])


def test_gold_features_exist_in_training_only(tmp_path):
    path = tmp_path / "q.jsonl"
    context = "a b c d e f g h"
    lines = [
        {"context": context, "question": "?", "answers": [{"text": "g h", "answer_start": 12}]},
        {
            "context": context,
            "question": "?",
            "answers": [{"text": "b", "answer_start": 2}, {"text": "a b", "answer_start": 0}] * 2,
        },
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    asked = squad("model.max_span=2", "model.window=4")
    result = asked.make_features(asked.read_examples(path), [], with_gold=True)
    assert result["windows"].tolist() == [4, 0]
    assert result["spans"].tolist() == [[[2, 3], [-1, -1]], [[0, 1], [1, 1]]]
    assert asked.make_features(asked.read_examples(path), [], with_gold=False).keys() == {"rows"}
    assert result["rows"].tolist() == [2, 2]


def test_scores_are_of_the_text_of_the_spans(tmp_path):
    path = tmp_path / "q.json"
    path.write_text(text(3))
    asked = squad().read_examples(path)
    assert len(asked) == 3
    gold = [[a.first, a.last] for question in asked for a in question.answers]
    assert squad().score(asked, gold) == {"f1": 100, "exact_match": 100}
    # the first passage is "Ann Lee saw Rome .": one word of its two
    assert squad().score(asked, [[1, 1], *gold[1:]]) == pytest.approx(
        {"f1": 100 * (2 / 3 + 2) / 3, "exact_match": 200 / 3}
    )


def test_a_passage_with_several_questions_is_read_by_the_bilm_once(tmp_path, bilm):
    path = tmp_path / "q.json"
    path.write_text(text(20))
    asked = squad(*toy_tasks.small("squad"))
    examples = asked.read_examples(path)
    sentences = (sentence for example in examples for sentence in asked.sentences(example))
    layers = layer_cache.load_or_compute(load(bilm, device="cpu"), sentences)
    assert len(layers) == 10 + 2  # passages and questions


def test_windows_are_learned_from_and_predicted_over(tmp_path):
    """Names stand far behind the first window."""
    asked = []
    for i in range(12):
        before = "so it goes on " * (3 + i % 4)
        context = f"{before}and then Ann saw {'Rome' if i % 2 else 'Paris'} ."
        answer = context.split()[-2]
        asked.append(
            {
                "context": context,
                "question": "What did Ann see ?",
                "answer": answer,
                "answer_start": context.index(answer),
            }
        )
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)))
    kind = registry.find_task("squad")
    small = [*toy_tasks.small("squad"), "model.window=8", "model.max_span=3", "train.epochs=15"]
    recipe = registry.load_recipe(kind, None, small)
    trained = train(kind, recipe, path, path, tmp_path / "run", embedder="none", device="cpu")
    assert trained.scores["f1"] == 100
    line = f"What did Ann see ?\t{'so it goes on ' * 50} and then Ann saw Rome ."
    (result,) = trained.predict([line], tokenized=True)
    assert result.data["answer"] == result.line == "Rome"
    assert line.partition("\t")[2][result.data["start"] : result.data["end"]] == "Rome"


def test_the_recipe_of_the_paper_learns_from_passages_of_several_sentences(tmp_path):
    asked = []
    for place in ("Rome", "Oslo", "Bonn"):
        context = f"Bo went to Paris. Ann saw {place}. It rained."
        where = context.index(place)
        question = {"context": context, "question": "What did Ann see ?"}
        asked.append(question | {"answer": place, "answer_start": where})
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)))
    kind = registry.find_task("squad")
    settings = [*toy_tasks.small("squad"), "train.ema_decay=0.9", "train.evaluate_every=20"]
    recipe = registry.load_recipe(kind, "paper", [*settings, "train.epochs=20"])
    bilm = toy_tasks.bilm(tmp_path / "bilm")
    trained = train(kind, recipe, path, path, tmp_path / "run", embedder=f"elmo:{bilm}")
    assert trained.scores["f1"] == 100
