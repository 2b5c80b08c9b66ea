import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.text.tokenizers import Tokenizer, penn, tokenize, whitespace
from tests.support.linear_time import is_linear

# Raw text, and its words between bars. A row without a bar stays one word.
GOLDEN = {
    "contractions": [
        ("I don't know", "I|do|n't|know"),
        ("it's what we'll say", "it|'s|what|we|'ll|say"),
        ("I'm sure they've won", "I|'m|sure|they|'ve|won"),
        ("she'd, they're", "she|'d|,|they|'re"),
        ("can't won't ain't", "ca|n't|wo|n't|ai|n't"),
        ("DON'T IT'S", "DO|N'T|IT|'S"),
        ("don’t it’s we’ll", "do|n’t|it|’s|we|’ll"),
        ("shouldn't've", "should|n't|'ve"),
        ("the dog's tail", "the|dog|'s|tail"),
        ("the dogs' tails", "the|dogs|'|tails"),
        ("O'Brien's U.S.'s 1990's", "O'Brien|'s|U.S.|'s|1990|'s"),
        ("I cannot; Cannot.", "I|can|not|;|Can|not|."),
        ("gonna gotta wanna", "gon|na|got|ta|wan|na"),
        ("Lemme go, gimme that", "Lem|me|go|,|gim|me|that"),
        ("'tis and 'Twas", "'t|is|and|'T|was"),
        ("get 'em", "get|'em"),
    ],
    "words that stay whole": [
        ("well-known e-mail", "well-known|e-mail"),
        ("mother-in-law's", "mother-in-law|'s"),
        ("cannots Gottas wannabe", "cannots|Gottas|wannabe"),
        ("O'Brien d'Artagnan d’Artagnan", "O'Brien|d'Artagnan|d’Artagnan"),
        ("rock'n'roll rock 'n' roll", "rock'n'roll|rock|'n'|roll"),
        ("five o'clock, ma'am", "five|o'clock|,|ma'am"),
        ("AT&T C++ C# snake_case", "AT&T|C++|C#|snake_case"),
        ("node.js ASP.NET v5.2 1.HC", "node.js|ASP.NET|v5.2|1.HC"),
        ("cafe\u0301 naïve Gyōki", "cafe\u0301|naïve|Gyōki"),
        ("мир Ελλάδα", "мир|Ελλάδα"),
        ("co\u00adop می\u200cروم", "co\u00adop|می\u200cروم"),
    ],
    "dashes": [
        ("wait--what", "wait|--|what"),
        ("wait -- what --- no", "wait|--|what|---|no"),
        ("software—typically", "software|—|typically"),
        ("1914–1918", "1914|–|1918"),
        ("pre- and post-war", "pre|-|and|post-war"),
    ],
    "addresses": [
        ("see http://a.org/b?c=d&e=f.", "see|http://a.org/b?c=d&e=f|."),
        ("(https://a.org/wiki/B_(c))", "(|https://a.org/wiki/B_(c)|)"),
        ('"www.a.org/x/", he said', '"|www.a.org/x/|"|,|he|said'),
        ("at github.com/a/b-c!", "at|github.com/a/b-c|!"),
        ("Ask first.last+tag@mail.example.org.", "Ask|first.last+tag@mail.example.org|."),
        ("@some_one: #TheNew10, #1", "@some_one|:|#TheNew10|,|#|1"),
        ("a @ b, x@y", "a|@|b|,|x|@|y"),
    ],
    "numbers": [
        ("1,234.56 3.14 10:30 1/2", "1,234.56|3.14|10:30|1/2"),
        ("1960-61, 6-3.", "1960-61|,|6-3|."),
        ("$5 €5 US$5 5%", "$|5|€|5|US|$|5|5|%"),
        ("the 22nd, the 1990s, the '90s, ’68", "the|22nd|,|the|1990s|,|the|'90s|,|’68"),
        ("in 1990, 1991 and 1992.", "in|1990|,|1991|and|1992|."),
        ("-40 (+0.5) −3 .5", "-40|(|+0.5|)|−3|.5"),
        ("2+2=4", "2|+|2|=|4"),
        ("and/or km/h", "and|/|or|km|/|h"),
    ],
    "dots": [
        ("Mr. Smith and Dr. No", "Mr.|Smith|and|Dr.|No"),
        ("in the U.S. today", "in|the|U.S.|today"),
        ("e.g. this, i.e. that, at 5 a.m.", "e.g.|this|,|i.e.|that|,|at|5|a.m."),
        ("St. Paul, Acme Inc.", "St.|Paul|,|Acme|Inc."),
        ("No. 5 of vol. 3, p. 7", "No.|5|of|vol.|3|,|p.|7"),
        ("No. I said no.", "No|.|I|said|no|."),
        ("J. R. R. Tolkien, J.R.R. Tolkien", "J.|R.|R.|Tolkien|,|J.R.R.|Tolkien"),
        ("J.Smith and George W.", "J.|Smith|and|George|W."),
        ("So do I. Yes, I. M. Pei does.", "So|do|I|.|Yes|,|I.|M.|Pei|does|."),
        ("a U.S.-led Ph.D. in the U.S.A", "a|U.S.-led|Ph.D.|in|the|U.S.A"),
        ("It ends. It starts.", "It|ends|.|It|starts|."),
        ("The end.The start. his.45", "The|end|.|The|start|.|his|.|45"),
        ("so... well…", "so|...|well|…"),
        ("etc.... and", "etc|....|and"),
    ],
    "marks": [
        ('"Hi," he said.', '"|Hi|,|"|he|said|.'),
        ("“Hi” ‘there’ «you»", "“|Hi|”|‘|there|’|«|you|»"),
        ("'hello' it said", "'|hello|'|it|said"),
        ("``so'' [it] {is} <x>", "``|so|''|[|it|]|{|is|}|<|x|>"),
        ("What?! No!!", "What|?|!|No|!|!"),
        ("a; b: c", "a|;|b|:|c"),
        ("Kuurne (国幣)", "Kuurne|(|国|幣|)"),
    ],
    "other scripts": [
        ("日本語", "日|本|語"),
        ("カタカナ ラーメンです", "カタカナ|ラーメンです"),
        ("東京タワーへ", "東|京|タワーへ"),
        ("한국어 단어.", "한국어|단어|."),
        ("ภาษาไทย ok", "ภาษาไทย|ok"),
        ("。「中」", "。|「|中|」"),
    ],
    "emoji and invisible characters": [
        ("hi👍🏽!", "hi|👍🏽|!"),
        ("👩‍👩‍👧😀", "👩‍👩‍👧|😀"),
        ("🇩🇪🇫🇷", "🇩🇪|🇫🇷"),
        ("1️⃣ #️⃣ ❤️", "1️⃣|#️⃣|❤️"),
        ("\ufeffa\u200bb", "\ufeff|a|\u200b|b"),
        ("\x00 \x07a", "\x00|\x07|a"),
    ],
}

ROWS = [pytest.param(raw, words, id=raw) for rows in GOLDEN.values() for raw, words in rows]
TRICKY = "aAnNtTsI1.9,:/'’-–—@#_&+$%()[]\"“”`….!? \t\n\x1c\x85\u00a0\u200b\u200d\u00ad\ufe0f\u20e3"
TRICKY += "\u0301\u0600\u0e01\u3099中かカー한👍🏽🇩❤\ud800\U000e0067ßİſ"

either = pytest.mark.parametrize("tokenize", [penn, whitespace])


@pytest.mark.parametrize(("raw", "words"), ROWS)
def test_penn_gives_the_words_of_the_table(raw: str, words: str):
    assert penn(raw).words == words.split("|")


def check(tokenize: Tokenizer, text: str) -> None:
    words, offsets = tokenize(text)
    assert [text[start:end] for start, end in offsets] == words
    covered = [index for start, end in offsets for index in range(start, end)]
    assert covered == [index for index, char in enumerate(text) if not char.isspace()]
    assert "" not in words


@either
@given(text=st.text())
def test_words_cover_any_text_but_its_whitespace(tokenize: Tokenizer, text: str):
    check(tokenize, text)


@either
@given(text=st.text(TRICKY))
def test_words_cover_tricky_text_but_its_whitespace(tokenize: Tokenizer, text: str):
    check(tokenize, text)


PIECES = [
    "http://",
    "www.",
    "a@b.c",
    "don't",
    "U.S.",
    "No. 5",
    "...",
    "--",
    " ",
    "(",
    "'s",
    "X.",
    "中",
]


@either
@given(pieces=st.lists(st.sampled_from(PIECES)))
def test_words_cover_glued_pieces_but_their_whitespace(tokenize: Tokenizer, pieces: list[str]):
    check(tokenize, "".join(pieces))


@either
@pytest.mark.parametrize("text", ["", " ", "\n\t\x1c\u2003 "])
def test_a_text_without_words_has_no_tokens(tokenize: Tokenizer, text: str):
    assert tokenize(text) == ([], [])


def test_offsets_count_characters_of_the_raw_text():
    assert penn(" He  can't.").offsets == [(1, 3), (5, 7), (7, 10), (10, 11)]


def test_whitespace_splits_at_whitespace_only():
    assert whitespace(" don't\u00a0 stop.\n") == (["don't", "stop."], [(1, 6), (8, 13)])


REPEATED = "a a' a. a- a-- a@ a_ 1, 1. #1 . - @ ' n't ( A. 中 www. a.b/ \u0301"
REPEATED += " http:// http://. http://( http://(a 👍\u200d 🇩 I.\xa0 [-1"


# Scripts with and without spaces side by side: a word ends there, but the letters go on
MIXED = "é中 aの яก n中 中é' é中́"


@pytest.mark.slow
@pytest.mark.parametrize("unit", [" ", *REPEATED.split(" "), *MIXED.split(" ")])
def test_penn_takes_linear_time_on(unit: str):
    assert is_linear(penn, unit)


@pytest.mark.parametrize("found", ["a b", 3, None])
def test_a_tokenizer_that_gives_no_list_of_words_is_refused(found):
    with pytest.raises(DataError, match=r"the tokenizer returned .*, expected a list of words"):
        tokenize("a b", lambda text: found)
