import io
import json
import sys
from pathlib import Path

import pytest

from elmore.cli.tables import print_table
from elmore.embed.embedder import Embedder
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore

LINES = ["the play was good .", "they play a game", "a good game was on"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def text(tmp_path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES))
    return str(path)


def neighbors(model: str, *arguments: str):
    return run_elmore("neighbors", model, *map(str, arguments), "--tokenized", "--device=cpu")


def refused(model: str, *arguments: str) -> str:
    result = neighbors(model, *arguments)
    assert result.code == 1
    assert result.out == ""
    (line,) = result.err.splitlines()
    return line


def test_neighbors_prints_a_table_of_sentences_with_the_word_marked(model, text):
    result = neighbors(model, text, "the [play] was long", "-k", "3")
    head, *rows = [line.split("\t") for line in result.out.splitlines()]
    assert (result.code, result.err) == (0, "")
    assert head == ["similarity", "line", "use"]
    assert len(rows) == 3
    for similarity, line, use in rows:
        assert -1 <= float(similarity) <= 1
        assert use.replace("[", "").replace("]", "") == LINES[int(line)]
        assert use.count("[") == 1
    falling = [float(similarity) for similarity, *_ in rows]
    assert falling == sorted(falling, reverse=True)


def test_on_a_terminal_the_marked_word_keeps_its_brackets(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    print_table([{"similarity": "0.912", "use": "the [play] was [bold] ."}], as_json=False)
    assert "the [play] was [bold] ." in sys.stdout.getvalue()


def test_the_text_is_read_once(model, text, monkeypatch, cache):
    first = neighbors(model, text, "the [play] was long")
    assert len(list((cache / "uses").iterdir())) == 1
    monkeypatch.setattr(Embedder, "stream", None)
    assert neighbors(model, text, "the [play] was long") == first
    folder = next((cache / "uses").iterdir())
    assert neighbors(model, str(folder), "the [play] was long") == first


def test_json_holds_all_of_every_query(model, text):
    queries = ("the [play] was long", "a good [game]")
    result = json.loads(neighbors(model, text, *queries, "--word", "game", "--json").out)
    assert [one["query"] for one in result] == list(queries)
    for one in result:
        assert {use["word"] for use in one["neighbors"]} == {"game"}
        for use in one["neighbors"]:
            assert set(use) == {"word", "tokens", "position", "similarity", "line"}
            assert use["tokens"] == LINES[use["line"]].split()


def test_several_queries_are_a_table_each_under_the_query(model, text):
    result = neighbors(model, text, "the [play] was long", "a good [game]", "-k", "1")
    lines = result.out.splitlines()
    assert [lines[0], lines[3], lines[4]] == ["the [play] was long", "", "a good [game]"]
    assert len(lines) == 7


def test_a_search_says_when_there_are_fewer_occurrences_than_k(model, text):
    result = neighbors(model, text, "the [play]", "--word", "play")
    assert (result.code, len(result.out.splitlines())) == (0, 3)
    assert result.err == "the [play]: only 2 of 10 neighbours exist\n"
    alone = neighbors(model, text, "[they] play a game", "--word", "they")
    assert (alone.code, alone.out) == (0, "")
    assert "only 0 of 10" in alone.err


def test_an_index_is_built_in_a_folder_and_added_to(model, text, tmp_path):
    index, more = tmp_path / "index", tmp_path / "more.txt"
    more.write_text("another play")
    assert neighbors(model, text, "--index", index, "--layers", "all") == (0, f"{index}\n", "")
    assert (index / "layer-0.f16").exists()
    assert neighbors(model, index, "--append", more).code == 0
    result = neighbors(model, index, "the [play]", "--layer", "0", "--word", "play", "-k", "3")
    assert [line.split("\t")[0] for line in result.out.splitlines()[1:]] == ["1.000"] * 3


def test_the_layer_is_the_one_that_is_kept(model, text, cache):
    neighbors(model, text, "the [play]", "--layer", "average")
    (folder,) = (cache / "uses").iterdir()
    assert (folder / "layer-average.f16").exists()
    assert not (folder / "layer-2.f16").exists()


def test_invalid_input_is_reported_in_one_sentence(model, text, tmp_path):
    assert "no word is marked" in refused(model, text, "the play")
    assert "2 words are marked" in refused(model, text, "[the] [play]")
    assert "'zebra'" in refused(model, text, "the [zebra]", "--word", "zebra")
    assert "name it with --index" in refused(model, text, "--append", text)
    assert "cannot be read" in refused(model, tmp_path / "nothing.txt", "the [play]")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    assert "holds no words" in refused(model, empty, "the [play]")
    (tmp_path / "folder").mkdir()
    assert "holds no index.json" in refused(model, tmp_path / "folder", "the [play]")
    assert "layers 0 to 2" in refused(model, text, "the [play]", "--layer", "7")


def test_an_index_is_asked_with_the_model_that_made_it(model, text, tmp_path):
    index = tmp_path / "index"
    neighbors(model, text, "--index", index)
    other = str(toy_tasks.bilm(tmp_path / "other", seed=1))
    assert "an index of another model" in refused(other, index, "the [play]")
    assert "is an index already" in refused(model, index, "--layers", "all")
    assert "stores 2" in refused(model, index, "the [play]", "--layer", "1")


def test_raw_text_and_raw_queries_are_tokenised_alike(model, tmp_path):
    pytest.importorskip("sentencex")
    path = tmp_path / "raw.txt"
    path.write_text("It's a play. They can't play.")
    query = ("I can't [play].", "--word=play", "--device=cpu")
    result = run_elmore("neighbors", model, str(path), *query)
    uses = {line.split("\t")[2] for line in result.out.splitlines()[1:]}
    assert uses == {"They ca n't [play] .", "It 's a [play] ."}


def test_a_stopped_run_says_how_to_resume(model, text, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Embedder, "stream", stopped)
    result = neighbors(model, text, "the [play]")
    assert (result.code, result.err) == (130, "elmore: stopped; run the same command to resume\n")


def test_a_marked_word_that_the_text_does_not_hold_is_said_to_be_absent(model, text):
    result = neighbors(model, text, "the [zebra] was long", "-k", "2")
    assert result.code == 0
    assert result.err == "'zebra' does not occur in the text; results are other words\n"
    assert len(result.out.splitlines()) == 3


def test_a_layer_that_will_not_be_stored_is_refused_before_the_text_is_read(model, text, cache):
    message = refused(model, text, "the [play]", "--layers", "0,1", "--layer", "top")
    assert message == "elmore: --layer top: --layers must include the layer to search"
    assert not (cache / "uses").exists()
    assert neighbors(model, text, "the [play]", "--layers", "0,1", "--layer", "1").code == 0
