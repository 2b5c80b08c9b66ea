"""Split a SQuAD file by articles into train, dev and test files.

    python examples/split_squad.py dev-v1.1.json split.json OUT

`split.json` maps a part to the titles of its articles: {"train": ["Oxygen", ...], "dev": [...],
"test": [...]}. OUT gets one file per part, such as train.json. The input may be compressed (.xz,
.gz, ...).
"""

import json
import sys
from pathlib import Path

from elmore.text.files import Lines


def main(source: str, split: str, out: str) -> None:
    whole = json.loads("\n".join(map(str, Lines([source], column=None))))
    parts = json.loads(Path(split).read_text(encoding="utf-8"))
    articles = {article["title"]: article for article in whole["data"]}
    chosen = [title for titles in parts.values() for title in titles]
    wrong = {title for title in chosen if chosen.count(title) > 1} | (set(chosen) ^ set(articles))
    if wrong:
        sys.exit(f"{sorted(wrong)[0]!r}: expected each title of {source} once in {split}")
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, titles in parts.items():
        data = [articles[title] for title in titles]
        num_questions = sum(len(p["qas"]) for article in data for p in article["paragraphs"])
        text = json.dumps({"version": whole.get("version", ""), "data": data}, ensure_ascii=False)
        (Path(out) / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}  {len(data)} articles, {num_questions} questions")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
