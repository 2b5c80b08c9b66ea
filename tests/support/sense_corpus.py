"""Write a small sense-annotated corpus and a small WordNet, in the formats of the real ones.

Used by tests/probe and fuzz/probes.
"""

from pathlib import Path

AnnotatedWord = tuple[str, str, str, str]
"""Text, lemma, part of speech, gold keys."""


def write_corpus(folder: Path, name: str, documents: list[list[list[str | AnnotatedWord]]]) -> Path:
    """Write documents of sentences of plain words and annotated uses; give the XML's path."""
    lines, keys = [f'<corpus lang="en" source="{name}">'], []
    for d, document in enumerate(documents):
        lines.append(f'<text id="d{d}">')
        for s, sentence in enumerate(document):
            lines.append(f'<sentence id="d{d}.s{s}">')
            for t, word in enumerate(sentence):
                if isinstance(word, str):
                    lines.append(f'<wf lemma="x" pos="X">{word}</wf>')
                    continue
                text, lemma, pos, gold = word
                id = f"d{d}.s{s}.t{t}"
                lines.append(f'<instance id="{id}" lemma="{lemma}" pos="{pos}">{text}</instance>')
                keys.append(f"{id} {gold}")
            lines.append("</sentence>")
        lines.append("</text>")
    path = folder / f"{name}.data.xml"
    path.write_text("\n".join([*lines, "</corpus>", ""]), encoding="utf-8")
    (folder / f"{name}.gold.key.txt").write_text("\n".join([*keys, ""]), encoding="utf-8")
    return path


def write_wordnet(folder: Path, *senses: tuple[str, int]) -> Path:
    """Write an index.sense of keys and their sense numbers, in the order of the alphabet."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} 00000001 {number} 0\n" for key, number in sorted(senses)]
    (folder / "index.sense").write_text("".join(lines), encoding="utf-8")
    return folder
