# %% [markdown]
# # ELMo in an afternoon
#
# We build ELMo from nothing: characters, a CNN, two language models, layers, a mix, a tagger.
# Nothing but torch is used until the last cell. The text is so small that every cell runs in
# seconds; the steps are those of the real model.
#
# The file is a script and a notebook: run it with `python`, open it cell by cell in VS Code,
# PyCharm or Spyder, or make an `.ipynb` of it with `jupytext --to ipynb`.
#
# The question of the afternoon: *fish* is a noun in "the fish swim" and a verb in "they fish". Its
# letters are the same. How does a model come to know which is which, when nobody tells it about
# nouns and verbs?

# %%
import math
import random

import torch
from torch import Tensor, nn
from torch.nn import functional

import elmore

torch.manual_seed(0)
torch.set_num_threads(1)  # for models this small more are no quicker
draw = random.Random(0)  # noqa: S311 -- no secrets here

# %% [markdown]
# ## 1. A text
#
# A small grammar writes it for us, so we know the tag of every word. The language models will see
# the words alone. Six words are both a noun and a verb.

# %%
BOTH = ["fish", "plant", "play", "watch", "paint", "light"]
NOUNS = ["cats", "dogs", "birds", "houses", "rivers", "songs", "clocks", "trees", *BOTH]
VERBS = ["see", "like", "find", "want", "sell", "clean", *BOTH]
ADJECTIVES = ["old", "red", "small", "quiet"]
NAMES = ["Ann", "Bo", "Eve", "Max"]


def noun_phrase(pronouns: list[str]) -> list[tuple[str, str]]:
    kind = draw.random()
    if kind < 0.25:
        return [(draw.choice(pronouns), "PRONOUN")]
    if kind < 0.4:
        return [(draw.choice(NAMES), "NAME"), ("and", "AND"), (draw.choice(NAMES), "NAME")]
    adjective = [(draw.choice(ADJECTIVES), "ADJECTIVE")] if draw.random() < 0.4 else []
    return [(draw.choice(["the", "some"]), "ARTICLE"), *adjective, (draw.choice(NOUNS), "NOUN")]


def tagged_sentence() -> list[tuple[str, str]]:
    someone, verb = noun_phrase(["they", "we"]), (draw.choice(VERBS), "VERB")
    something = noun_phrase(["them", "us"]) if draw.random() < 0.7 else []
    return [*someone, verb, *something, (".", "DOT")]


tagged = [tagged_sentence() for _ in range(2200)]
sentences = [[word for word, _ in sentence] for sentence in tagged]
text, unseen = sentences[:2000], sentences[2000:]
for sentence in text[:5]:
    print(" ".join(sentence))

# %% [markdown]
# ## 2. Characters
#
# A word is its bytes between two marks, filled up to one length. So there is no unknown word:
# whatever can be written can be spelled.

# %%
BEGIN, END, PADDING, LONGEST = 256, 257, 258, 12


def spell(word: str) -> list[int]:
    ids = [BEGIN, *word.encode()[: LONGEST - 2], END]
    return ids + [PADDING] * (LONGEST - len(ids))


print(spell("fish"))

# %% [markdown]
# ## 3. A CNN: from letters to a vector
#
# Filters of several widths slide over the letters. A filter of width 3 may come to like `ing`,
# wherever it stands; we keep its largest answer only. The *highway* after it can pass each number
# on as it is, or change it, or something in between.


# %%
class WordCNN(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(259, 8)
        self.filters = nn.ModuleList(nn.Conv1d(8, 16, size) for size in (1, 2, 3, 4))
        self.change, self.gate = nn.Linear(64, 64), nn.Linear(64, 64)
        self.projection = nn.Linear(64, width)

    def forward(self, spelled: Tensor) -> Tensor:  # (words, letters) -> (words, width)
        letters = self.letters(spelled).transpose(1, 2)
        found = [conv(letters).amax(dim=2) for conv in self.filters]  # the largest, over the word
        x = torch.relu(torch.cat(found, dim=1))
        gate = torch.sigmoid(self.gate(x) - 2)  # at first it is nearly closed
        return self.projection(gate * torch.relu(self.change(x)) + (1 - gate) * x)


WIDTH = 32
words = WordCNN(WIDTH)(torch.tensor([spell("fish"), spell("fishes"), spell("tree")]))
print(words.shape)
print("untrained, fishes is already near fish:", functional.cosine_similarity(words[:1], words[1:]))

# %% [markdown]
# ## 4. Two language models
#
# One reads from the left and tells the next word. The other reads from the right, which is the
# same on reversed sentences. Neither may see the word that it tells, so the two never meet inside.
# They share the CNN and the softmax.
#
# `<S>` and `</S>` stand around every sentence: the first word has to be told from something, and
# the last one too.

# %%
START, STOP = "<S>", "</S>"
vocabulary = sorted({word for sentence in text for word in sentence} | {START, STOP})
number = {word: place for place, word in enumerate(vocabulary)}
spelled_vocabulary = torch.tensor([spell(word) for word in vocabulary])


def batch(chosen: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Numbers of words (sentences, tokens), and which of them are there: the rest is filling."""
    rows = [torch.tensor([number[word] for word in [START, *words, STOP]]) for words in chosen]
    index = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    return index.clamp(min=0), index >= 0


def reverse(values: Tensor, mask: Tensor) -> Tensor:
    """Turn each sentence round within its own length."""
    places = torch.arange(mask.shape[1]).expand_as(mask)
    turned = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)
    return values.gather(1, turned[:, :, None].expand_as(values))


class BiLM(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cnn = WordCNN(width)
        # Two layers each. In the real one the cell is eight times as wide as what it gives out.
        self.ahead, self.behind = (
            nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(2))
            for _ in range(2)
        )
        self.softmax = nn.Linear(width, len(vocabulary))

    def read(self, stack: nn.ModuleList, vectors: Tensor) -> list[Tensor]:
        outputs = []
        for lstm in stack:
            hidden = lstm(vectors)[0]
            vectors = hidden + vectors if outputs else hidden  # the second layer adds its input
            outputs.append(vectors)
        return outputs

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        ahead = self.read(self.ahead, vectors)
        behind = self.read(self.behind, reverse(vectors, mask))
        return ahead, [reverse(layer, mask) for layer in behind]

    def loss(self, index: Tensor, mask: Tensor) -> Tensor:
        """Give the mean of -log P over both directions."""
        vectors = self.cnn(spelled_vocabulary)[index]  # each word of the vocabulary runs once
        ahead, behind = self(vectors, mask)
        next_word, here = index[:, 1:], mask[:, 1:]
        from_left = self.softmax(ahead[-1][:, :-1])[here]
        from_right = self.softmax(behind[-1][:, 1:])[here]
        forward = functional.cross_entropy(from_left, next_word[here])
        backward = functional.cross_entropy(from_right, index[:, :-1][here])
        return (forward + backward) / 2


bilm = BiLM(WIDTH)
optimizer = torch.optim.Adam(bilm.parameters(), lr=5e-3)
for step in range(300):
    loss = bilm.loss(*batch(draw.sample(text, 32)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"update {step}: perplexity {math.exp(loss.item()):.1f}")

with torch.no_grad():
    perplexity = math.exp(bilm.loss(*batch(unseen)).item())
print(f"on sentences it has not seen: {perplexity:.1f}; by guessing, {len(vocabulary)}")

# %% [markdown]
# ## 5. Layers
#
# What both stacks hold at a word, side by side, is its vector at that height. Layer 0 is the
# CNN's, twice, so that all are equally wide. A word's vector now depends on its sentence, in every
# layer but that one.


# %%
@torch.no_grad()
def layers_of(chosen: list[list[str]]) -> tuple[Tensor, Tensor]:
    """(layers, sentences, tokens, width) without the boundaries, and the mask."""
    every = sorted({word for sentence in chosen for word in [START, *sentence, STOP]})
    place = {word: row for row, word in enumerate(every)}
    vectors = bilm.cnn(torch.tensor([spell(word) for word in every]))  # any word: no vocabulary
    rows = [torch.tensor([place[word] for word in [START, *words, STOP]]) for words in chosen]
    index = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    mask = index >= 0
    found = vectors[index.clamp(min=0)] * mask[:, :, None]
    ahead, behind = bilm(found, mask)
    stack = [torch.cat([found, found], dim=2)]
    stack += [torch.cat(pair, dim=2) for pair in zip(ahead, behind, strict=True)]
    return torch.stack(stack)[:, :, 1:-1], mask[:, 2:]


uses = ["they fish .", "we fish some birds .", "the fish see Ann and Bo .", "some fish like us ."]
stack, _ = layers_of([use.split() for use in uses])
places = [use.split().index("fish") for use in uses]
fish = stack[:, range(4), places]  # (layers, uses, width)
for layer, vectors in enumerate(functional.normalize(fish, dim=2)):
    near = vectors @ vectors.T
    apart = near[:2, 2:].mean()
    alike = f"verb and verb {near[0, 1]:.2f}, noun and noun {near[2, 3]:.2f}"
    print(f"layer {layer}: {alike}, verb and noun {apart:.2f}")

# %% [markdown]
# ## 6. The mix
#
# A task wants one vector a token. Each layer gets a weight, positive and summing to one, and the
# sum a scale, gamma. They are learned with the task. This is equation 1 of the paper, and there is
# no more to it.


# %%
class Mix(nn.Module):
    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        return self.gamma * torch.einsum("l,l...->...", self.weights.softmax(dim=0), layers)


# %% [markdown]
# ## 7. A tagger
#
# Now somebody tells it about nouns and verbs: thirty sentences with tags. The language models stay
# as they are. Above the mix there is one matrix, which cannot look at other words: whatever it
# knows of the sentence it has from the vectors.

# %%
tags = sorted({tag for sentence in tagged for _, tag in sentence})
lesson, exam = tagged[2000:2030], tagged[2030:]


def prepared(examples: list[list[tuple[str, str]]]) -> tuple[Tensor, Tensor, list[bool]]:
    """Layers of every token in a row, (layers, tokens, width), its tag, and whether it is both."""
    stack, mask = layers_of([[word for word, _ in sentence] for sentence in examples])
    wanted = [tags.index(tag) for sentence in examples for _, tag in sentence]
    both = [word in BOTH for sentence in examples for word, _ in sentence]
    return stack[:, mask], torch.tensor(wanted), both


def learn(which: list[int]) -> tuple[float, float, list[float]]:
    """Train mix and matrix over some layers; right in the exam: all words, words that are both."""
    stack, wanted, _ = prepared(lesson)
    mix, matrix = Mix(len(which)), nn.Linear(2 * WIDTH, len(tags))
    optimizer = torch.optim.Adam([*mix.parameters(), *matrix.parameters()], lr=0.02)
    for _ in range(150):
        loss = functional.cross_entropy(matrix(mix(stack[which])), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stack, wanted, both = prepared(exam)
    right = (matrix(mix(stack[which])).argmax(dim=1) == wanted).float()
    shares = [round(share, 2) for share in mix.weights.softmax(dim=0).tolist()]
    return right.mean().item(), right[torch.tensor(both)].mean().item(), shares


scores = {}
for name, which in {"letters alone": [0], "the mix": [0, 1, 2]}.items():
    everything, ambiguous, shares = learn(which)
    scores[name] = ambiguous
    print(f"{name}: {everything:.1%} of all words, {ambiguous:.1%} of fish and its kind")
    print("  the layers weigh", shares)

# %% [markdown]
# Letters alone cannot tell the two kinds of *fish* apart: about half of them are right. The mix
# can, from thirty sentences, because two language models had to know what may come next. That is
# all of ELMo.
#
# Things to try: a tagger on one layer at a time; ten sentences in the lesson, or three; one
# direction only; a language model that was not trained; words that no one has seen
# (`layers_of([["they", "fishes", "."]])` works, why?).
#
# ## 8. The real one
#
# The same parts, larger, and 69 million words of text: the model that comes with elmore.
# `how-it-works.md` shows its code beside the paper's equations.

# %%
english = elmore.load()
uses = ["They fish in the lake .", "We fish at night .", "The fish swim .", "Some fish are red ."]
found = [each.vectors[:, each.tokens.index("fish")] for each in english.embed(uses, layers="all")]
fish = torch.stack([torch.from_numpy(each) for each in found], dim=1)
for layer, vectors in enumerate(functional.normalize(fish, dim=2)):
    near = vectors @ vectors.T
    apart = near[:2, 2:].mean()
    alike = f"verb and verb {near[0, 1]:.2f}, noun and noun {near[2, 3]:.2f}"
    print(f"layer {layer}: {alike}, verb and noun {apart:.2f}")
