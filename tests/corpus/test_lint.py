"""A suspicious text is reported before hours of training are spent."""

import pytest

from elmore.corpus import lint
from elmore.corpus.lint import lint_corpus
from elmore.corpus.options import PrepareOptions
from elmore.errors import DataError

FINE = "\n\n".join(
    f"The number {i} is not odd, is it? It is number {i}. We all think so, of course."
    for i in range(60)
)


def suspicious(tmp_path, text: str | bytes, **options) -> dict[str, str]:
    """Return the suspicious findings by name."""
    path = tmp_path / "text.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    findings = lint_corpus([str(path)], PrepareOptions(**options))
    assert list(tmp_path.iterdir()) == [path], "something was written"
    return {
        finding.what: f"{finding.found}; {finding.advice}"
        for finding in findings
        if finding.suspicious
    }


def test_a_clean_text_has_nothing_suspicious(tmp_path):
    assert suspicious(tmp_path, FINE) == {}


@pytest.mark.parametrize(
    ("what", "text", "found"),
    [
        ("not UTF-8", FINE.encode() + b"\nna\xefve\n", "1.6 % of lines, first in"),
        ("control characters", FINE + "\na \x07 bell\n", "text.txt line 120; is it text?"),
        ("markup", FINE + "\nSee <a href='x'>here</a> &amp; there\n", "remove it"),
        ("markup", FINE + "\n[[File:x.jpg]]\n", "remove it"),
        ("marks as words", FINE + "\nan <UNK> word\n", "they become unknown words"),
        ("long words", FINE + "\n" + "x" * 200 + "\n", "words of 100 characters or more"),
        ("repeated lines", FINE + "\n" + "Again and again.\n" * 30, "remove them"),
        ("documents", FINE.replace("\n\n", "\n"), "--valid-fraction cannot choose"),
        (
            "characters per word",
            "今天天气很好我们去公园散步吧大家都很高兴\n\n" * 30,
            "almost no spaces",
        ),
        ("scripts", FINE + "\n" + "Это другой язык.\n" * 60, "several languages"),
        ("words per sentence", FINE + "\n" + "on and on " * 200, "longest 600"),
    ],
)
def test_suspicious_text_is_named_with_advice(tmp_path, what, text, found):
    assert found in suspicious(tmp_path, text)[what]


def test_tokenized_text_and_raw_text_are_told_apart(tmp_path):
    tokenized = FINE.replace(",", " ,").replace(".", " .").replace("?", " ?")
    assert "pass --tokenized" in suspicious(tmp_path, tokenized)["punctuation on its own"]
    assert suspicious(tmp_path, tokenized, tokenized=True) == {}
    assert (
        "omit --tokenized" in suspicious(tmp_path, FINE, tokenized=True)["punctuation on its own"]
    )


def test_wrapped_text_is_noticed(tmp_path):
    text = "It is a long way to go from here\nto there, and so the line\nbreaks twice.\n\n" * 30
    assert "pass --hard-wrapped" in suspicious(tmp_path, text)["lines that end inside a sentence"]
    assert "lines that end inside a sentence" not in suspicious(tmp_path, text, hard_wrapped=True)


def test_marks_are_not_taken_for_markup(tmp_path):
    assert set(suspicious(tmp_path, FINE + "\n<S> a </S> <UNK>\n")) == {"marks as words"}


def test_repeats_are_found_in_a_sample_when_there_are_too_many_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(lint, "_MAX_HASHES", 100)
    lines = [f"Line number {i} of them all." for i in range(4000)]
    result = suspicious(tmp_path, "\n\n".join(lines + lines[:1000]))
    assert 15 < float(result["repeated lines"].split(" %")[0]) < 25  # a fifth


def test_only_the_beginning_is_looked_at_closely_but_all_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(lint, "SAMPLE", 500)
    text = FINE + "\n\n" + "on and on " * 200 + "\n\nsee </p>\n"
    assert set(suspicious(tmp_path, text)) == {"markup"}


def test_an_empty_report_is_refused(tmp_path):
    with pytest.raises(DataError, match="contains no word"):
        suspicious(tmp_path, "\n\n")
