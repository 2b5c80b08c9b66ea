"""A small text and its index."""

from elmore.probe.neighbors import UseIndex

LINES = ["the play was good .", "", "they play a game", "a good game was on", "the end"]


def text(path, lines=LINES):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def built(tmp_path, elmo, name="index", lines=LINES, **choices):
    file = text(tmp_path / f"{name}.txt", lines)
    return UseIndex.build(tmp_path / name, elmo, [file], tokenized=True, **choices)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
