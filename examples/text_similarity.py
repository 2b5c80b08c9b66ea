"""Rank sentences by their cosine with a query, with plain means and with a learned pooling.

    python examples/text_similarity.py [QUERY SENTENCE...]

Plain means are all similar to each other; a learned pooling separates them.
"""

import sys

import elmore

QUERY = "A man is playing a guitar on the street ."
SENTENCES = [
    "A musician plays music outside .",
    "Someone performs a song for people in the road .",
    "Two dogs run through the snow .",
    "The company reported a loss in the third quarter .",
    "A woman is reading a book on the train .",
    "The government announced new taxes on Monday .",
]
SAMPLE = """A boy kicks a ball in the park .|The bank raised its interest rates again .
The river rises in the mountains of Wales .|She was born in Paris in 1902 .
Two women are cooking dinner in a kitchen .|He studied law at the university .
The band released its first album in May .|A child sleeps on a couch .
The minister resigned after the election .|People wait for a bus in the rain .
The species is found in southern Africa .|A cat is sitting on the roof .
The team won the match by two goals .|The road leads north to the coast .
A man is painting a wall .|The war ended in the following year ."""  # better: many of your own


def show(title, similarity, sentences):
    print(f"\n  {title}")
    for value, sentence in sorted(zip(similarity, sentences, strict=True), reverse=True):
        print(f"  {value:6.2f}  {'█' * max(0, round(30 * value)):30}  {sentence}")


def main():
    query, *sentences = sys.argv[1:] if len(sys.argv) > 2 else [QUERY, *SENTENCES]
    elmo = elmore.load()
    pooling = elmo.learn_pooling(SAMPLE.replace("\n", "|").split("|"), weighted=True, remove=1)
    print(f"  {query}")
    show("plain mean", elmo.similarity([query], sentences, pool="mean")[0], sentences)
    show("learned pooling", elmo.similarity([query], sentences, pool=pooling)[0], sentences)
    print("\n  Sentences built alike stay near: these vectors hold grammar, not only topic.")


if __name__ == "__main__":
    main()
