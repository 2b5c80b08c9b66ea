"""Train a small biLM from raw text in one sitting, and save it as a model folder.

    python examples/train_bilm.py TEXT... -o FOLDER [--recipe mini] [--minutes 8] [--tokenized]

Sentences are independent: each starts from the zero state that embedding starts from. Both
directions share the characters and one full softmax over the most frequent words. The model that
comes with the package was made by this script (see its card).
"""

import argparse
import lzma
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from elmore import config
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.text import sentences
from elmore.text.characters import ByteAlphabet
from elmore.text.tokenizers import penn
from elmore.weights import folder, warm
from elmore.weights.bundle import Bundle, Card

BEGIN, END = 0, 1  # the first two word types


def tokenize(paragraph: str) -> list[list[str]]:
    """Split a paragraph into sentences, and those into words."""
    spans = sentences.split(paragraph)
    return [penn(paragraph[start:end]).words for start, end in spans]


def read(paths: list[Path], longest: int, tokenized: bool) -> tuple[list[str], list[np.ndarray]]:
    """Give the word types by falling count, and each sentence as an array of their numbers."""
    lines: list[str] = []
    for path in paths:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
        lines += [line for line in text.splitlines() if line.strip()]
    if tokenized:
        texts = [line.split() for line in lines]
    else:
        with multiprocessing.Pool() as pool:
            texts = [text for found in pool.imap(tokenize, lines, 200) for text in found]
    texts = [text for text in texts if 0 < len(text) <= longest]
    counts = Counter(word for text in texts for word in text)
    types = ["<S>", "</S>", *(word for word, _ in counts.most_common())]
    number = {word: i for i, word in enumerate(types)}
    ids = [np.array([BEGIN, *map(number.__getitem__, text), END], np.int32) for text in texts]
    return types, ids


def batches(ids: list[np.ndarray], budget: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Give padded batches of sentences of like length, in random order, without end."""
    while True:
        keys = np.array([len(sentence) for sentence in ids]) + rng.random(len(ids))
        order, start, found = keys.argsort(), 0, []
        while start < len(order):
            size = max(1, budget // len(ids[order[start]]))
            found.append(order[start : start + size])
            start += size
        rng.shuffle(found)
        for group in found:
            batch = np.full((len(group), max(len(ids[i]) for i in group)), -1, np.int64)
            for row, i in zip(batch, group, strict=True):
                row[: len(ids[i])] = ids[i]
            yield batch


class Trainable(nn.Module):
    """A biLM and its softmax: the mean loss of the next and the previous word."""

    def __init__(self, shape: BiLMConfig, num_words: int) -> None:
        super().__init__()
        self.bilm = BiLM(shape)
        self.softmax = nn.Linear(shape.lstm.output_dim, num_words + 1)  # the last is "rare"
        self.num_words = num_words

    def forward(self, batch: torch.Tensor, spelling: torch.Tensor) -> torch.Tensor:
        types, index = torch.unique(batch.clamp(min=0), return_inverse=True)
        index = torch.where(batch >= 0, index, -1)
        stack, _ = self.bilm(index, spelling[types].long())
        forward, backward = self.bilm.dropout(stack.states[-1]).chunk(2, dim=2)
        inside = batch[:, 1:] >= 0  # a pair of neighbours: each is to be told from the other
        left, right = batch[:, :-1][inside], batch[:, 1:][inside]
        losses = self.loss(forward[:, :-1][inside], right), self.loss(backward[:, 1:][inside], left)
        return sum(losses) / 2

    def loss(self, states: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            self.softmax(states).float(), words.clamp(max=self.num_words)
        )


def train(model: Trainable, types, ids, *, minutes: float, rate: float, budget: int) -> None:
    device = next(model.parameters()).device
    spelling, _ = ByteAlphabet().encode(types)
    spelling = torch.from_numpy(spelling.astype(np.int16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
    begun, losses = time.monotonic(), []
    for step, batch in enumerate(batches(ids, budget, np.random.default_rng(0))):
        spent = (time.monotonic() - begun) / (60 * minutes)
        if spent >= 1:
            break
        optimizer.param_groups[0]["lr"] = rate * min(1, step / 200, 1.02 - spent)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(torch.from_numpy(batch).to(device), spelling)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step % 200 == 0:
            mean = torch.stack(losses[-200:]).mean().item()
            print(f"step {step}  {100 * spent:.0f} %  loss {mean:.3f}", flush=True)


def save(model: BiLM, card: Card, out: Path) -> None:
    """Write the folder, in half precision: small on the disk, as good in use."""
    model = model.float().cpu().eval()
    bundle = warm.warmed(Bundle(model, ByteAlphabet(), card=card))
    model.half()
    folder.save(bundle, out, overwrite=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+", type=Path, help="plain or .xz, one paragraph a line")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--tokenized", action="store_true", help="one sentence a line, by spaces")
    parser.add_argument("--recipe", default="mini")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--words", type=int, default=30_000, help="words in the softmax")
    parser.add_argument("--budget", type=int, default=16_384, help="tokens in a batch")
    parser.add_argument("--rate", type=float, default=2e-3)
    for key in ("language", "licence", "data"):
        parser.add_argument(f"--{key}", default="", help="for the model card")
    args = parser.parse_args()
    recipes = Path(config.__file__).parent / "recipes" / "bilm"
    shape = config.read(BiLMConfig, recipes / f"{args.recipe}.toml")
    types, ids = read(args.text, longest=60, tokenized=args.tokenized)
    print(f"{sum(map(len, ids)):,} tokens, {len(types):,} types", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Trainable(shape, min(args.words, len(types) - 1)).to(device)
    train(model, types, ids, minutes=args.minutes, rate=args.rate, budget=args.budget)
    card = Card(name=args.out.name, language=args.language, licence=args.licence, data=args.data)
    save(model.bilm, card, args.out)


if __name__ == "__main__":
    main()
