"""benchmarks/corpus: its readers, what is prose, what is left out, and all of it on two clones."""

import gzip
import hashlib
import importlib
import json
import lzma
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "benchmarks/corpus"
MODULES = ("build", "overlap", "paragraphs", "readers", "repositories", "shards")
PROSE = "The river rose in the night, and the men who lived by it took what they had to the hill."
OTHER = "She said that a letter had come for him, but no one in the house knew who had sent it."


@pytest.fixture(scope="module")
def corpus():
    """The modules of the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture
def read(corpus):
    def documents(reader: str, text: str | bytes) -> list[list[str]]:
        raw = text if isinstance(text, bytes) else text.encode()
        return [
            [paragraph for paragraph in map(corpus.paragraphs.tidy, document) if paragraph]
            for document in corpus.readers.READERS[reader](raw)
        ]

    return documents


def test_articles_of_wikiextractor_come_without_titles(read):
    text = (
        '<doc id="1" url="?curid=1" title="A">\nA\n\nA (AB;) (; born 1942) is first.\n</doc>\n'
        '<doc id="2" url="?curid=2" title="B">\nB\n\nB &amp; C are next.\n</doc>\n'
    )
    assert read("wikiextractor", text) == [["A (AB) (born 1942) is first."], ["B & C are next."]]


BOOK = """The Project Gutenberg eBook of Nothing
*** START OF THIS PROJECT GUTENBERG EBOOK NOTHING ***

She looked at _him_ and
said nothing at all.[1]

Of rivers deep
And mountains steep
I sing.

*** END OF THIS PROJECT GUTENBERG EBOOK NOTHING ***
You may copy it under the licence.
"""


def test_a_book_is_cut_from_its_licence_and_its_lines_are_joined(read):
    assert read("gutenberg", BOOK.replace("\n", "\r\n")) == [
        ["She looked at him and said nothing at all."]
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*** START OF", "*** BEGINNING OF"),
        ("The Project", "A COPYRIGHTED Project"),
        ("said nothing", "saith unto thee nothing"),
    ],
)
def test_a_book_without_a_start_or_in_copyright_or_in_old_english_is_left_out(read, old, new):
    assert read("gutenberg", BOOK.replace(old, new)) == []


def test_a_transcript_comes_without_speakers_times_and_laughter(read):
    text = (
        "**Ann Lee:** \\[04:10\\] I see *that*. \\[laughter\\]\n\n"
        "And [this](http://x.y), too.\n\n**Bo:** Yes.\n"
    )
    assert read("transcript", text) == [["I see that.", "And this, too.", "Yes."]]


def test_a_post_comes_without_front_matter_headings_lists_code_and_templates(read):
    text = (
        '---\ntitle: T\n---\n\n## H\n\nWe <a href="u">use</a> **it**\nnow. {{< img src="x" >}}\n\n'
        "- one\n- two\n\n```\ncode\n```\n\n![a](b.png)\n"
    )
    assert read("blog", text) == [["We use it now."]]


def test_a_textbook_comes_without_exercises_formulas_and_notes(read):
    text = (
        '<document xmlns="http://cnx.rice.edu/cnxml"><metadata><para>No.</para></metadata><content>'
        '<para>One <term>two</term> (<link target-id="f"/>)<cite><note>Ibid.</note></cite>.</para>'
        "<section><para>Three\n four.</para>"
        "<exercise><problem><para>Why?</para></problem></exercise>"
        '<para>Let <m:math xmlns:m="urn:m">x</m:math> be.</para></section></content></document>'
    )
    assert read("cnxml", text) == [["One two.", "Three four."]]


def test_an_article_comes_without_figures_and_formulas(read):
    text = (
        "<article><front><p>No.</p></front><body><sec><title>T</title><p>A <italic>b</italic> c"
        "<fig><caption><p>F.</p></caption></fig>.</p><p>So <inline-formula>x</inline-formula>.</p>"
        "</sec></body></article>"
    )
    assert read("jats", text) == [["A b c."]]
    assert read("jats", "<article><body>") == []


def test_the_record_is_mended_and_cut_into_items_and_paragraphs(read):
    first = (
        "Mr. QUIGLEY. Mr. Speaker, equal-\r\nity is well-known to us, and\r\nwe like it. \r\n"
        "It is a long-\r\nterm wish of twenty-\r\nseven. \r\n"
        "(a) IN GENERAL.—The \r\nSecretary shall. \r\n"
        "[From the Daily Post] \r\nIt is ours. "
    )
    filler = "equality long-term twenty seven \r\n" * 400
    day = f"{first}\r\nVerDate Mar 15 2010\r\nf \r\nTHE HOUSE \r\n{filler}".encode()
    string = (
        b"\x00\x04\x00\x09\x00\x00\x00\x02CR"
        + b"\x00\x00\x00\x09"
        + len(day).to_bytes(4, "big")
        + day
    )
    items = read("congress", gzip.compress(b"RDX3\nX\n" + string))
    assert items[0] == [
        "Mr. Speaker, equality is well-known to us, and we like it.",
        "It is a long-term wish of twenty-seven.",
    ]
    assert len(items) == 2


@pytest.mark.parametrize(
    ("text", "is_prose"),
    [
        (PROSE, True),
        ("Too short to say.", False),
        (PROSE.rstrip("."), False),
        (PROSE.upper(), False),
        (PROSE.replace("river", "<ref>river"), False),
        (
            "Der Fluss stieg in der Nacht, und die Leute am Ufer trugen ihre Habe auf den Berg.",
            False,
        ),
        (
            "John Smith, Mary Brown, Peter Green, Sue White, Harry Black, Carl Grey, Bo Lee.",
            False,
        ),
        (
            "1990 12 13 14 15 16 and the 17 18 19 20 of 21 22 23 24 25 to 26 27 28 29 in 30.",
            False,
        ),
    ],
)
def test_prose_is_told_from_lists_markup_and_other_languages(corpus, text, is_prose):
    assert corpus.paragraphs.is_prose(text, corpus.paragraphs.split_words(text), 12) is is_prose


def test_words_are_what_the_definition_of_the_evaluation_grams_says(corpus):
    assert corpus.paragraphs.split_words("It's naïve — 3.5 DAYS_of") == [
        b"it",
        b"s",
        b"na",
        b"ve",
        b"3",
        b"5",
        b"days",
        b"of",
    ]


def test_evaluation_grams_are_those_of_the_definition_and_stay_inside_a_paragraph(corpus):
    paragraphs = [corpus.paragraphs.split_words(text) for text in (PROSE, "", OTHER)]
    expected = []
    for words in paragraphs:
        grams = [b" ".join(words[start : start + 13]) for start in range(len(words) - 12)]
        expected += [
            int.from_bytes(hashlib.blake2b(gram, digest_size=8).digest()[:5], "big")
            for gram in grams
        ]
    result = corpus.overlap.evaluation_grams(paragraphs)
    assert result.hashes.tolist() == expected
    assert result.paragraphs.tolist() == [0] * (len(paragraphs[0]) - 12) + [2] * (
        len(paragraphs[2]) - 12
    )


def test_near_grams_are_the_same_wherever_they_stand(corpus):
    split = corpus.paragraphs.split_words
    alone = corpus.overlap.near_grams([split(PROSE)])
    after = corpus.overlap.near_grams([split(OTHER), split(PROSE)])
    assert len(set(alone.hashes.tolist())) == len(split(PROSE)) - 7
    assert after.hashes[after.paragraphs == 1].tolist() == alone.hashes.tolist()
    assert not set(after.hashes[after.paragraphs == 0].tolist()) & set(alone.hashes.tolist())


def test_a_paragraph_shares_a_gram_with_an_evaluation_text_or_does_not(corpus):
    split = corpus.paragraphs.split_words
    known = np.sort(corpus.overlap.evaluation_grams([split(PROSE)]).hashes)
    changed = f"Some say: {PROSE[:60].lower()} and then they went away, all but the old one."
    assert corpus.overlap.find_shared([split(OTHER), split(PROSE), split(changed)], known) == {1, 2}
    assert corpus.overlap.find_shared([split("A few words.")], known) == set()


def test_near_duplicates_are_left_out_and_new_paragraphs_kept(corpus):
    def marks(*texts: str):
        return corpus.build.hash_lines([*texts])

    seen = corpus.overlap.Seen(bits=20)
    assert seen.keep_new(*marks(PROSE)) == [0]
    nearly = PROSE.replace("hill", "high hill")
    assert seen.keep_new(*marks(PROSE.upper())) == []
    assert seen.keep_new(*marks(nearly)) == []
    assert seen.keep_new(*marks(OTHER, nearly, f"{OTHER[::-1]} {OTHER[::-1]}")) == [0, 2]
    seen.add_exact(corpus.build.hash_lines(["Yes, it is so."])[0])
    assert seen.keep_new(*marks("Yes -- it is so!", "No, it is not.")) == [1]


def test_a_document_with_a_held_out_paragraph_is_left_out_whole(corpus):
    seen = corpus.overlap.Seen(bits=20)
    seen.hold_out(corpus.build.hash_lines([PROSE])[0])
    assert seen.keep_new(*corpus.build.hash_lines([OTHER, PROSE.upper()])) == []
    assert seen.keep_new(*corpus.build.hash_lines([OTHER])) == [0]


def test_shards_have_the_same_mix(corpus):
    documents = [
        corpus.shards.Document(source, size, b"text\n")
        for source in ("a", "b")
        for size in (*range(1, 40), 200, 200)
    ]
    dealt = corpus.shards.deal(documents, 2, seed=3)
    assert dealt == corpus.shards.deal(documents, 2, seed=3)
    assert sorted(dealt[0] + dealt[1]) == sorted(documents)
    for source in ("a", "b"):
        words = [
            sum(entry.num_words for entry in shard if entry.source == source) for shard in dealt
        ]
        assert words == [590, 590]


SOURCES = """
[[source]]
name = "wiki"
reader = "wikiextractor"
licence = "CC BY-SA"
repositories = [{ name = "ann/wiki", commit = "main", files = ["text/*/wiki_*"] }]

[[source]]
name = "talk"
reader = "transcript"
licence = "CC BY"
min_words = 3
repositories = [{ name = "bo/talk", commit = "main", files = ["*.md"] }]
"""


def commit_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "text"], check=True)


def test_a_corpus_is_built_from_clones_and_built_the_same_again(
    corpus, tmp_path, monkeypatch, capsys
):
    held_out = (
        "They were all of them away when the first of the snow came down on the roofs of the town."
    )
    already = "He had no more to say to her, and she went out of the room and down to the lake."
    articles = [PROSE, OTHER, held_out, already]
    docs = "".join(
        f'<doc id="{n}">\nTitle\n\n{text}\nHeading.\n</doc>\n' for n, text in enumerate(articles)
    )
    commit_files(tmp_path / "clones/ann/wiki", {"text/AA/wiki_00": docs, "README.md": PROSE})
    commit_files(
        tmp_path / "clones/talk",
        {"one.md": f"**Bo:** {PROSE}\n", "two.md": "**Ann:** That is so, and it was.\n"},
    )
    (tmp_path / "sources.toml").write_text(SOURCES)
    (tmp_path / "held.txt").write_text(held_out + "\n")
    with lzma.open(tmp_path / "already.txt.xz", "wt") as file:
        file.write(already + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(corpus.build, "Seen", lambda: corpus.overlap.Seen(bits=20))
    outputs = []
    for name in ("first", "second"):
        out = tmp_path / name
        options = "--sources sources.toml --held-out held.txt --already already.txt.xz --nice 0"
        options += f" --evaluation --json {name}.json --workers 1 --first-shard 6"
        monkeypatch.setattr(sys, "argv", ["build.py", "clones", name, *options.split()])
        corpus.build.main()
        assert [path.name for path in out.iterdir()] == ["train-06.txt.xz"]
        outputs.append(lzma.decompress((out / "train-06.txt.xz").read_bytes()).decode())
    assert outputs[0] == outputs[1]
    assert sorted(outputs[0].rstrip().split("\n\n")) == sorted(
        [OTHER, PROSE, "That is so, and it was."]
    )
    counts = json.loads((tmp_path / "first.json").read_text())
    assert counts["sources"][0] == {
        "source": "wiki",
        "paragraphs": 8,
        "prose": 4,
        "new": 2,
        "kept": 2,
        "documents": 2,
        "words": len(f"{PROSE} {OTHER}".split()),
        "licence": "CC BY-SA",
    }
    assert counts["files"][0]["words"] == counts["sources"][0]["words"] + 6
    assert "| talk | 2 | 2 | 1 | 1 | 1 | 6 | CC BY |" in capsys.readouterr().out


def test_the_sources_have_a_reader_a_licence_and_whole_commits(corpus):
    sources = corpus.repositories.load_sources(FOLDER / "sources.toml")
    assert len(sources) > 5
    for source in sources:
        assert source.reader in corpus.readers.READERS
        assert any(word in source.licence for word in ("CC BY 4.0", "CC BY-SA", "public domain"))
        for repository in source.repositories:
            assert len(repository.commit) == 40
            assert repository.files


def test_a_clone_that_is_not_there_is_named(corpus, tmp_path):
    with pytest.raises(SystemExit, match="no clone of ann/wiki"):
        corpus.repositories.find_clone(tmp_path, "ann/wiki")


def test_a_git_lfs_pointer_is_skipped(read):
    assert read("congress", b"version https://git-lfs.github.com/spec/v1\n") == []


def test_a_source_that_is_not_there_is_named(corpus):
    sources = corpus.repositories.load_sources(FOLDER / "sources.toml")
    assert [one.name for one in corpus.build.choose_sources(sources, ["books"])] == ["books"]
    with pytest.raises(SystemExit, match=r"--only boks: no such source; known are wikipedia, "):
        corpus.build.choose_sources(sources, ["boks"])
