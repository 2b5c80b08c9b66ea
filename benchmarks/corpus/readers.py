"""Parse the bytes of a file into documents: lists of paragraphs, not yet cleaned or filtered."""

import gzip
import re
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

Document = list[str]

# --- WikiExtractor -----------------------------------------------------------------------------

_ARTICLE = re.compile(r"<doc [^>]*>\n(.*?)</doc>", re.DOTALL)


def read_wikiextractor(raw: bytes) -> Iterator[Document]:
    """Yield articles without their titles."""
    for article in _ARTICLE.finditer(raw.decode("utf-8", "replace")):
        yield article[1].split("\n")[1:]


# --- Project Gutenberg -------------------------------------------------------------------------

_BOOK_START = re.compile(
    r"^\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG[^\n]*\n|^\*END[* ]*THE SMALL PRINT[^\n]*\n",
    re.MULTILINE,
)
_BOOK_END = re.compile(
    r"^\*\*\* ?END OF TH(?:E|IS) PROJECT GUTENBERG"
    r"|^(?:This is the )?End of (?:the |this )?Project Gutenberg",
    re.MULTILINE | re.IGNORECASE,
)
_ARCHAIC = re.compile(
    r"\b(?:thee|thou|thy|thine|hath|doth|ye|hast|shalt|unto|'tis|'twas|whilst)\b", re.IGNORECASE
)
_MAX_ARCHAIC = 0.0007  # per word
_VERSE_WIDTH = 50


def read_gutenberg(raw: bytes) -> Iterator[Document]:
    """Yield a book in the public domain and in newer English, without licence and verse."""
    text = _decode(raw, "cp1252").replace("\r\n", "\n").replace("\r", "\n")
    starts = list(_BOOK_START.finditer(text[: len(text) // 2]))
    if not starts or "COPYRIGHTED" in text[: starts[-1].end()]:
        return
    end = _BOOK_END.search(text, starts[-1].end())
    body = text[starts[-1].end() : end.start() if end else len(text)]
    if len(_ARCHAIC.findall(body)) > _MAX_ARCHAIC * body.count(" "):
        return
    blocks = re.split(r"\n[ \t]*\n", body)
    yield [_join_lines(block).replace("_", "") for block in blocks if not _is_verse(block)]


def _decode(raw: bytes, otherwise: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode(otherwise, "replace")


def _is_verse(block: str) -> bool:
    lines = [line for line in block.split("\n") if line.strip()]
    longest = max(map(len, lines), default=0)
    return block.startswith("    ") or (len(lines) > 2 and longest < _VERSE_WIDTH)


def _join_lines(block: str) -> str:
    return " ".join(block.split())


# --- Markdown ----------------------------------------------------------------------------------

_FRONT_MATTER = re.compile(r"\A\s*---\n.*?\n---\n", re.DOTALL)
_NOT_TEXT = re.compile(
    r"```.*?```|<!--.*?-->|\{\{.*?\}\}|\{%.*?%\}|<(script|style|table)\b.*?</\1>", re.DOTALL
)
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\]|\{[^}]*\})")
_TAG = re.compile(r"</?[a-zA-Z][^>]*>")
_EMPHASIS = re.compile(r"(?<![\w\\])(\*\*|__|\*|_)(?=\S)(.+?)(?<=\S)\1(?!\w)")
_ESCAPE = re.compile(r"\\([\[\]()*_`~.!#>{}+-])")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•#>|]|\d+[.)])")


def _strip_markdown(text: str) -> str:
    text = _LINK.sub(lambda link: "" if link[0][0] == "!" else link[1], text)
    text = _TAG.sub("", text)
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    return _ESCAPE.sub(r"\1", text).replace("`", "")


def read_blog(raw: bytes) -> Iterator[Document]:
    """Yield a post without front matter, headings, lists, code and templates."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    text = _NOT_TEXT.sub("", _FRONT_MATTER.sub("", text))
    blocks = [block for block in re.split(r"\n\s*\n", text) if not _LIST_ITEM.match(block)]
    yield [_join_lines(_strip_markdown(block)) for block in blocks]


_SPEAKER = re.compile(r"^\*\*[^*\n]{1,60}:\*\*\s*", re.MULTILINE)
_ASIDE = re.compile(r"\\?\[(?:\d+:\d+(?::\d+)?(?:\.\d+)?|[a-z ]{3,40}|\.+)\\?[\[\]](?!\() ?")


def read_transcript(raw: bytes) -> Iterator[Document]:
    """Yield a conversation, a turn to a paragraph, without speakers, times and [laughter]."""
    text = _SPEAKER.sub("", raw.decode("utf-8", "replace").replace("\r\n", "\n"))
    blocks = re.split(r"\n\s*\n", _ASIDE.sub("", text))
    yield [_join_lines(_strip_markdown(block)) for block in blocks if not _LIST_ITEM.match(block)]


# --- XML: textbooks (CNXML) and articles (JATS) ------------------------------------------------

_CNXML_SKIPPED = {
    "exercise",
    "figure",
    "table",
    "metadata",
    "glossary",
    "footnote",
    "cite",
    "list",
    "abstract",
}
_JATS_SKIPPED = {
    "fig",
    "fig-group",
    "table-wrap",
    "supplementary-material",
    "list",
    "fn",
    "disp-formula",
    "media",
}
_FORMULAS = {"math", "inline-formula", "disp-formula", "equation", "tex-math", "code"}
_NOTE = re.compile(r"\s*\((?:see |and |or |, )*\)")


def _local(element: ET.Element) -> str:
    tag = element.tag
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def _text_of(element: ET.Element, skipped: set[str]) -> str | None:
    """Return the text of a paragraph, or nothing where a formula stands in it."""
    parts = [element.text or ""]
    for child in element:
        name = _local(child)
        if name in _FORMULAS:
            return None
        if name not in skipped:
            inner = _text_of(child, skipped)
            if inner is None:
                return None
            parts.append(inner)
        parts.append(child.tail or "")
    return "".join(parts)


def _paragraphs_of(element: ET.Element, name: str, skipped: set[str]) -> Iterator[str]:
    for child in element:
        if _local(child) == name:
            text = _text_of(child, skipped)
            if text:
                yield _NOTE.sub("", _join_lines(text))
        elif _local(child) not in skipped:
            yield from _paragraphs_of(child, name, skipped)


def _read_xml(raw: bytes, root: str, name: str, skipped: set[str]) -> Iterator[Document]:
    try:
        tree = ET.fromstring(raw)
    except ET.ParseError:
        return
    for element in tree.iter():
        if _local(element) == root:
            yield list(_paragraphs_of(element, name, skipped))


def read_cnxml(raw: bytes) -> Iterator[Document]:
    """Yield a textbook's module without exercises, figures and paragraphs with formulas."""
    yield from _read_xml(raw, "content", "para", _CNXML_SKIPPED)


def read_jats(raw: bytes) -> Iterator[Document]:
    """Yield the body of an article without figures, tables and paragraphs with formulas."""
    yield from _read_xml(raw, "body", "p", _JATS_SKIPPED)


# --- The Congressional Record, a day to a string in an R file ----------------------------------

_R_STRING = re.compile(
    rb"\x00(?:\x04\x00|\x00\x80|\x00\x40|\x00\x00)\x09(?=(.{4}))", re.DOTALL
)  # a CHARSXP
_MIN_DAY = 10_000  # bytes; a shorter string is a name
_FURNITURE = ("VerDate", "Jkt ", "PO 00000", "Frm ", "Fmt ", "CONGRESSIONAL RECORD", "PROD")
_TURN = re.compile(
    r"(?:(?:Mr|Mrs|Ms|Miss|Dr)\. (?:[A-Z]\.? )?[A-Z][a-z]{0,3}[A-Z’'-]+(?: [A-Z]\.)?(?: [A-Z’'-]+)*"
    r"(?: of [A-Z][a-z]+(?: [A-Z][a-z]+)?)?"
    r"|The (?:SPEAKER|SPEAKER pro tempore|PRESIDING OFFICER|Acting CHAIR|CHAIRMAN|CHAIR"
    r"|VICE PRESIDENT|(?:ACTING )?PRESIDENT pro tempore))\. "
)
_COLUMN = 32  # characters; a shorter line that ends a sentence ends a paragraph
_BILL = re.compile(r"\.—|^[\"“‘]*\(\w+\) |^(?:SEC|Sec)\. |^[HS]\. ?(?:R|J|Con|Res)\b")
_ARTICLE_READ = re.compile(r"\[From (?:the )?[A-Z]")
_NOT_WORD = re.compile(r"\W")


def _find_day(raw: bytes) -> str:
    for match in _R_STRING.finditer(raw):
        size = int.from_bytes(match[1], "big")
        if _MIN_DAY <= size <= len(raw) - match.end() - 4:
            return _decode(raw[match.end() + 4 : match.end() + 4 + size], "cp1252")
    return ""


def read_congress(raw: bytes) -> Iterator[Document]:
    """Yield the items of a day's proceedings, the words that the columns break mended."""
    try:
        day = _find_day(gzip.decompress(raw))
    except (OSError, EOFError, zlib.error):  # a pointer to a file that is stored elsewhere
        return
    whole = Counter(day.split())
    for item in re.split(r"\nf\s*\n", day.replace("\r\n", "\n")):
        lines = [line.strip() for line in item.split("\n")]
        lines = [
            line
            for line in lines
            if line and not line.isupper() and not any(map(line.__contains__, _FURNITURE))
        ]
        yield [*_spoken(_strip_turn(_mend(each, whole)) for each in _split_columns(lines))]


def _spoken(paragraphs: Iterable[str]) -> Iterator[str]:
    """Leave out bills, and all behind a newspaper's article: that is not in the public domain."""
    for paragraph in paragraphs:
        if _ARTICLE_READ.search(paragraph):
            return
        if not _BILL.search(paragraph):
            yield paragraph


def _strip_turn(paragraph: str) -> str:
    turn = _TURN.match(paragraph)
    return paragraph[turn.end() :] if turn else paragraph


def _split_columns(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if _TURN.match(line) and paragraph:
            yield " ".join(paragraph)
            paragraph = []
        paragraph.append(line)
        if len(line) < _COLUMN and line.rstrip("’”\"'").endswith((".", "?", "!", ":")):
            yield " ".join(paragraph)
            paragraph = []
    yield " ".join(paragraph)


def _mend(paragraph: str, whole: Counter[str]) -> str:
    """Join the halves of words that a line's end divides, by a hyphen where the day's words do."""
    mended, *rest = paragraph.split("- ")
    for piece in rest:
        left = mended.rpartition(" ")[2].lstrip("“‘\"'(")
        right = _NOT_WORD.split(piece, maxsplit=1)[0]
        hyphenated, joined = whole[f"{left}-{right}"], whole[left + right]
        two_words = not joined and whole[left] and whole[right]
        if hyphenated > joined or two_words or not right.islower():
            mended += "-"
        mended += piece
    return mended


READERS: dict[str, Callable[[bytes], Iterator[Document]]] = {
    "wikiextractor": read_wikiextractor,
    "gutenberg": read_gutenberg,
    "blog": read_blog,
    "transcript": read_transcript,
    "cnxml": read_cnxml,
    "jats": read_jats,
    "congress": read_congress,
}
