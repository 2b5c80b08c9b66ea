"""Split raw text into words, with their offsets.

For any text, the tokenizers here guarantee:

    text[start:end] == word       words are never changed
    ascending, no overlap         each character is in at most one word
    nothing lost                  each character that is not whitespace is in a word
    no whitespace inside          ``" ".join(words).split()`` equals ``words``

Whitespace is what ``str.isspace`` accepts.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import regex

from elmore.errors import DataError


class Tokens(NamedTuple):
    """The words of a text, and their start and end offsets in characters."""

    words: list[str]
    offsets: list[tuple[int, int]]


Tokenizer = Callable[[str], Iterable]
"""Returns `Tokens`, a list of strings, or objects with `text` and offset `idx` (spaCy)."""

# Python treats these four separators as whitespace, Unicode (and `regex`) as controls.
SPACE = r"\s\x1C-\x1F"
# Soft hyphen, joiners, direction marks: invisible inside a word, so they do not end it. The zero
# width space is not included: it ends a word.
INVISIBLE = r"\u00AD\u200C-\u200F\u2060"
KANA = r"\p{Hiragana}\p{Katakana}\u30FC\uFF70"  # with the long-vowel marks, which have no script
LETTER = rf"[\p{{L}}--\p{{Han}}{KANA}\p{{Thai}}]"
ALNUM = rf"[\p{{L}}\p{{N}}--\p{{Han}}{KANA}\p{{Thai}}]"
RUN = rf"{ALNUM}[\p{{L}}\p{{N}}\p{{M}}{INVISIBLE}--\p{{Han}}{KANA}\p{{Thai}}]*+"
END = r"(?![\p{L}\p{N}])"  # the end of a word
CLITIC = rf"['’](?i:s|d|m|ll|re|ve){END}"
# The dot of an abbreviation: "U.S." and "U.S.Army", not "U.S.A", "a.k.a" or "U.S.-led"
DOTTED = r"\.(?!\.|-\p{Ll}|[\p{Ll}\p{N}]|\p{Lu}(?!\p{Ll}))"
LABEL = r"[\p{L}\p{N}\-]{1,63}+"
PLAIN = rf"""[^{SPACE}<>"“”«»()]"""
BRACKETED = rf"\({PLAIN}*+\)"
ADDRESS = rf"(?:{PLAIN}|{BRACKETED})*(?:(?!\p{{P}}){PLAIN}|{BRACKETED})/?"

# A word or number, with the marks that may be inside it. A dot may be where no sentence can end:
# "node.js", "v5.2", "U.S.A", "1.HC", but not "end.Next", "5.Next" or "his.45".
WORD = rf"""{RUN} (?:
    (?: \.(?=\p{{Ll}})
      | (?<=[\p{{N}}\p{{Lu}}])\.(?=\p{{N}}|\p{{Lu}}(?!\p{{Ll}}))
      | (?<=\p{{N}})[,:/](?=\p{{N}})
      | [\-‐‑]
      | \.-(?=\p{{Ll}})
      | (?!{CLITIC})['’](?=\p{{L}})
      | [&·](?=\p{{L}})
      | _++
    ) {RUN} )*+"""

ABBREVIATIONS = """
    Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Rev Fr Hon Pres Gov Sen Sens Rep Reps Gen Col Lt Maj Capt
    Cmdr Cpl Sgt Adm Supt Jr Sr Sra Srta Esq St Ste Mt Ft Ave Blvd Rd Str Inc Corp Co Cos Ltd Bros
    Assn Dept Univ Jan Feb Apr Aug Sep Sept Oct Nov Dec Ala Ariz Calif Colo Conn Fla Ga Kan Ky Md
    Mich Minn Neb Nev Okla Pa Tenn Va Vt Wis Wyo Ph.D vs etc cf viz al approx ca eds bzw usw
"""
# Abbreviations only before a number: "No. 5", but "No." is an answer.
BEFORE_NUMBERS = "no nos nr p pp vol vols fig figs art sec ch op mar jun jul est"

# Order matters: the first alternative that matches wins, so the most common words come first, and
# what contains a word (an address, an abbreviation) comes before the word. Repeats are possessive
# or bounded, or end where a word does, wherever a later alternative could scan the same text again,
# so that the time is linear.
PENN = regex.compile(
    rf"""
    (?=[^{SPACE}]) (?:

    # Contractions without an apostrophe
      (?=[CGLWcglw]) (?i: can(?=not{END}) | (?:gon|wan)(?=na{END}) | got(?=ta{END})
                        | (?:lem|gim)(?=me{END}) )

    # Most words and marks, where the next character excludes the alternatives below
    | [A-Za-zÀ-ÖØ-öø-ɏΑ-ωА-я]++ (?=[\s,;!?)\]"”] | ['’]s?\s)
    | [0-9]++ (?=[,;.)]?\s)
    | [,;()"“”] [\p{{M}}\p{{Cf}}]*+
    | \. (?=\s)

    # Emoji with their modifiers and joined partners, flags (\X would count them from the first of
    # a run), keycaps
    | (?=\p{{Extended_Pictographic}}) \X
    | \p{{Regional_Indicator}}{{1,2}}+ [\p{{GCB=Extend}}\p{{GCB=SpacingMark}}\u200D]*+
    | [0-9#*]\uFE0F?\u20E3

    | (?={ALNUM}) (?:

        # Abbreviations keep their dot; so do initials, but not the pronoun
          (?=\p{{L}}{{1,6}}+\.) (?:
              \L<abbreviations> {DOTTED}
            | (?i: \L<before_numbers> ) \. (?=\s?\p{{N}})
            | \p{{L}} (?:\.\p{{L}}(?=\.))++ {DOTTED}
            | (?!I\.(?!\s?\p{{Lu}}\.)) \p{{Lu}} {DOTTED}
          )
        | [A-Za-z]++ (?=\.\s)

        # Addresses, without the punctuation of the sentence around them
        | (?i: https?:// | ftp:// | www\. ) {ADDRESS}
        | (?:{LABEL}\.){{1,8}}+ \p{{L}}{{2,24}}+ / {ADDRESS}
        | [\p{{L}}\p{{N}}._%+\-]{{1,64}}+ @ {LABEL} (?:\.{LABEL}){{1,8}}+

        # Contractions: the word before n't, and n't
        | {LETTER}+ (?=[nN]['’][tT]{END})
        | [nN]['’][tT]{END}

        | \p{{Lu}} (?:\+\+|[#]) {END}  # C++, C#
        | {WORD}
      )

    | (?<![^\s(\[]) [\-−+]?\.? (?=\p{{N}}) {WORD}  # -5, .5
    | (?<=[\p{{L}}\p{{N}}\p{{M}}.)\]"”]) {CLITIC}
    | (?<![\p{{L}}\p{{N}}_]) (?:
          ['’] (?i: t(?=is{END}|was{END}) | em{END} | n['’] | \p{{Nd}}{{2}}s?{END} )  # '90s
        | @ [\p{{L}}\p{{N}}_] [\p{{L}}\p{{N}}\p{{M}}_]*+
        | [#] (?=\p{{N}}*+[\p{{L}}_]) [\p{{L}}\p{{N}}\p{{M}}_]++
      )

    # Scripts without spaces: a Chinese character, a run of kana or Thai
    | \p{{Han}}\p{{M}}*+
    | [{KANA}][{KANA}\p{{M}}]*+
    | \p{{Thai}}[\p{{Thai}}\p{{M}}{INVISIBLE}]*+

    # Punctuation: runs of dots, dashes and typewriter quotes; everything else one by one
    | \.{{2,}}+ | …++ | [\-‒–—―]{{2,}}+ | `` | ''
    | \S [\p{{M}}\p{{Cf}}]*+
    )
    """,
    regex.VERBOSE | regex.V1,
    abbreviations=ABBREVIATIONS.split(),
    before_numbers=BEFORE_NUMBERS.split(),
)


def penn(text: str) -> Tokens:
    """Tokenize raw text as the Penn Treebank does, for European languages (others do not fail)."""
    return _with_offsets(PENN.findall(text), text)


def whitespace(text: str) -> Tokens:
    """Split text on whitespace, for text that is already tokenized."""
    return _with_offsets(text.split(), text)


def _with_offsets(words: list[str], text: str) -> Tokens:
    # Only whitespace is between words, so each word starts at its next occurrence
    offsets, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        offsets.append((start, end))
    return Tokens(words, offsets)


def tokenize(text: str, tokenizer: Tokenizer) -> Tokens:
    """Tokenize with any tokenizer, and find the offsets of the words.

    The offsets are empty if the tokenizer changed a word, which is then not in the text.
    """
    tokens = tokenizer(text)
    if isinstance(tokens, Tokens):
        return tokens
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise DataError(f"the tokenizer returned {str(tokens)[:40]!r}, expected a list of words")
    words, offsets, end = [], [], 0
    for token in tokens:
        word = token if isinstance(token, str) else token.text
        start = text.find(word, end) if isinstance(token, str) else token.idx
        end = start + len(word)
        words.append(word)
        offsets.append((start, end))
    placed = all(start >= 0 for start, _ in offsets)
    return Tokens(words, offsets if placed else [])
