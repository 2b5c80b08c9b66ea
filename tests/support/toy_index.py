"""A small text and its index of uses.

Used by probe/neighbors/test_index and probe/neighbors/test_writer.
"""

from elmore.probe.neighbors.index import OccurrenceIndex

LINES = ["the play was good .", "", "they play a game", "a good game was on", "the end"]


def write_text(path, lines=LINES):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def build_index(tmp_path, elmo, name="index", lines=LINES, **choices):
    file = write_text(tmp_path / f"{name}.txt", lines)
    return OccurrenceIndex.build(tmp_path / name, elmo, [file], tokenized=True, **choices)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
