# %% [markdown]
# # ELMo in an afternoon
#
# We build ELMo from scratch: characters, a CNN, two language models, layers, a mix, a tagger. Until
# the last cell we use only torch. The text is so small that every cell runs in seconds; the steps
# are those of the real model.
#
# This file is both a script and a notebook: run it with `python`, open it cell by cell in VS Code,
# PyCharm or Spyder, or convert it with `jupytext --to ipynb`.
#
# The question of the afternoon: *fish* is a noun in "the fish swim" and a verb in "they fish", with
# the same letters. How can a model learn the difference without any labels for nouns and verbs?

# %%
import math
import random

import torch
from torch import Tensor, nn
from torch.nn import functional

import elmore

torch.manual_seed(0)
torch.set_num_threads(1)  # more threads do not help such a small model
draw = random.Random(0)  # noqa: S311 -- not for cryptography

# %% [markdown]
# ## 1. A text
#
# A small grammar generates it, so we know the tag of every word. The language models will see only
# the words. Six words are both noun and verb.

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
# A word is encoded as its bytes between a begin mark and an end mark, padded to a fixed length. So
# there are no unknown words.

# %%
BEGIN, END, PADDING, LONGEST = 256, 257, 258, 12


def spell(word: str) -> list[int]:
    ids = [BEGIN, *word.encode()[: LONGEST - 2], END]
    return ids + [PADDING] * (LONGEST - len(ids))


print(spell("fish"))

# %% [markdown]
# ## 3. A CNN: from characters to a vector
#
# Filters of several widths slide over the characters. A filter of width 3 may learn to detect `ing`
# anywhere in the word; we keep only its largest output (max pooling). The *highway* layer after it
# learns for each number whether to copy it, to transform it, or to do something in between.


# %%
class WordCNN(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(259, 8)
        self.filters = nn.ModuleList(nn.Conv1d(8, 16, size) for size in (1, 2, 3, 4))
        self.transform, self.gate = nn.Linear(64, 64), nn.Linear(64, 64)
        self.projection = nn.Linear(64, width)

    def forward(self, spelled: Tensor) -> Tensor:  # (words, letters) -> (words, width)
        letters = self.letters(spelled).transpose(1, 2)
        pooled = [conv(letters).amax(dim=2) for conv in self.filters]  # maximum over the word
        x = torch.relu(torch.cat(pooled, dim=1))
        gate = torch.sigmoid(self.gate(x) - 2)  # nearly closed at first: the layer copies
        return self.projection(gate * torch.relu(self.transform(x)) + (1 - gate) * x)


WIDTH = 32
words = WordCNN(WIDTH)(torch.tensor([spell("fish"), spell("fishes"), spell("tree")]))
print(words.shape)
print("untrained, fishes is already near fish:", functional.cosine_similarity(words[:1], words[1:]))

# %% [markdown]
# ## 4. Two language models
#
# The forward model predicts the next word from the words before it. The backward model predicts the
# previous word from the words after it; it is the same on reversed sentences. Neither may see the
# word that it predicts, so their LSTMs are not connected. They share the CNN and the softmax.
#
# Every sentence begins with `<S>` and ends with `</S>`, so that the first and the last word have a
# context too.

# %%
START, STOP = "<S>", "</S>"
vocabulary = sorted({word for sentence in text for word in sentence} | {START, STOP})
word_ids = {word: row for row, word in enumerate(vocabulary)}
spelled_vocabulary = torch.tensor([spell(word) for word in vocabulary])


def batch(chosen: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Return word ids (sentences, tokens), and the mask of the tokens that are not padding."""
    rows = [torch.tensor([word_ids[word] for word in [START, *words, STOP]]) for words in chosen]
    index = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    return index.clamp(min=0), index >= 0


def reverse(values: Tensor, mask: Tensor) -> Tensor:
    """Reverse each sentence within its own length."""
    position = torch.arange(mask.shape[1]).expand_as(mask)
    source = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - position, position)
    return values.gather(1, source[:, :, None].expand_as(values))


class BiLM(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cnn = WordCNN(width)
        # Two layers each. In the real model the cell is eight times wider than its output.
        self.forward_lstms, self.backward_lstms = (
            nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(2))
            for _ in range(2)
        )
        self.softmax = nn.Linear(width, len(vocabulary))

    def run_direction(self, stack: nn.ModuleList, vectors: Tensor) -> list[Tensor]:
        outputs = []
        for lstm in stack:
            hidden = lstm(vectors)[0]
            vectors = hidden + vectors if outputs else hidden  # the second layer adds its input
            outputs.append(vectors)
        return outputs

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        forward = self.run_direction(self.forward_lstms, vectors)
        backward = self.run_direction(self.backward_lstms, reverse(vectors, mask))
        return forward, [reverse(layer, mask) for layer in backward]

    def loss(self, index: Tensor, mask: Tensor) -> Tensor:
        """Return the mean of -log P over both directions."""
        vectors = self.cnn(spelled_vocabulary)[index]  # each word of the vocabulary once
        forward, backward = self(vectors, mask)
        valid = mask[:, 1:]
        next_logits = self.softmax(forward[-1][:, :-1])[valid]
        previous_logits = self.softmax(backward[-1][:, 1:])[valid]
        forward_loss = functional.cross_entropy(next_logits, index[:, 1:][valid])
        backward_loss = functional.cross_entropy(previous_logits, index[:, :-1][valid])
        return (forward_loss + backward_loss) / 2


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
print(f"on unseen sentences: {perplexity:.1f}; a uniform guess has {len(vocabulary)}")

# %% [markdown]
# ## 5. Layers
#
# The vector of a word in a layer is the concatenation of the forward and the backward LSTM output.
# Layer 0 is the CNN output, twice, so that all layers have the same width. In every layer except
# layer 0, the vector of a word depends on its sentence.


# %%
@torch.no_grad()
def layers_of(chosen: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Return (layers, sentences, tokens, width) without the boundaries, and the mask."""
    distinct = sorted({word for sentence in chosen for word in [START, *sentence, STOP]})
    row_of = {word: row for row, word in enumerate(distinct)}
    vectors = bilm.cnn(torch.tensor([spell(word) for word in distinct]))  # needs no vocabulary
    rows = [torch.tensor([row_of[word] for word in [START, *words, STOP]]) for words in chosen]
    index = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    mask = index >= 0
    tokens = vectors[index.clamp(min=0)] * mask[:, :, None]
    forward, backward = bilm(tokens, mask)
    stack = [torch.cat([tokens, tokens], dim=2)]
    stack += [torch.cat(pair, dim=2) for pair in zip(forward, backward, strict=True)]
    return torch.stack(stack)[:, :, 1:-1], mask[:, 2:]


uses = ["they fish .", "we fish some birds .", "the fish see Ann and Bo .", "some fish like us ."]
stack, _ = layers_of([use.split() for use in uses])
positions = [use.split().index("fish") for use in uses]
fish = stack[:, range(4), positions]  # (layers, uses, width)
for layer, vectors in enumerate(functional.normalize(fish, dim=2)):
    near = vectors @ vectors.T
    apart = near[:2, 2:].mean()
    alike = f"verb and verb {near[0, 1]:.2f}, noun and noun {near[2, 3]:.2f}"
    print(f"layer {layer}: {alike}, verb and noun {apart:.2f}")

# %% [markdown]
# ## 6. The mix
#
# A task needs one vector per token: a weighted sum of the layers. The weights are positive and sum
# to one; gamma scales the sum. Weights and gamma are trained with the task. This is equation 1 of
# the paper.


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
# Now we use labels: thirty sentences with tags. The language models are frozen. Above the mix there
# is one linear layer, which sees one word at a time: everything it knows about the sentence comes
# from the vector.

# %%
tags = sorted({tag for sentence in tagged for _, tag in sentence})
train, test = tagged[2000:2030], tagged[2030:]


def features_and_tags(examples: list[list[tuple[str, str]]]) -> tuple[Tensor, Tensor, list[bool]]:
    """Return the layers (layers, tokens, width), tags, and whether a word is both, per token."""
    stack, mask = layers_of([[word for word, _ in sentence] for sentence in examples])
    gold = [tags.index(tag) for sentence in examples for _, tag in sentence]
    both = [word in BOTH for sentence in examples for word, _ in sentence]
    return stack[:, mask], torch.tensor(gold), both


def train_tagger(which: list[int]) -> tuple[float, float, list[float]]:
    """Return the test accuracy on all words and on those that are both, and the layer weights."""
    stack, gold, _ = features_and_tags(train)
    mix, linear = Mix(len(which)), nn.Linear(2 * WIDTH, len(tags))
    optimizer = torch.optim.Adam([*mix.parameters(), *linear.parameters()], lr=0.02)
    for _ in range(150):
        loss = functional.cross_entropy(linear(mix(stack[which])), gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stack, gold, both = features_and_tags(test)
    correct = (linear(mix(stack[which])).argmax(dim=1) == gold).float()
    weights = [round(weight, 2) for weight in mix.weights.softmax(dim=0).tolist()]
    return correct.mean().item(), correct[torch.tensor(both)].mean().item(), weights


scores = {}
for name, which in {"characters alone": [0], "the mix": [0, 1, 2]}.items():
    everything, ambiguous, weights = train_tagger(which)
    scores[name] = ambiguous
    print(f"{name}: {everything:.1%} of all words, {ambiguous:.1%} of fish and the like")
    print("  layer weights", weights)

# %% [markdown]
# Characters alone cannot separate the two kinds of *fish*: about half of the answers are right. The
# mix can, with thirty sentences, because the two language models had to learn what may come next.
# That is all of ELMo.
#
# Things to try: a tagger on one layer at a time; ten training sentences, or three; one direction
# only; an untrained language model; words that are not in the text
# (`layers_of([["they", "fishes", "."]])` works, why?).
#
# ## 8. The real model
#
# The bundled model of elmore has the same parts. It is larger and was trained on 69 million words.
# `how-it-works.md` shows its code next to the paper's equations.

# %%
english = elmore.load()
uses = ["They fish in the lake .", "We fish at night .", "The fish swim .", "Some fish are red ."]
vectors = [use.vectors[:, use.tokens.index("fish")] for use in english.embed(uses, layers="all")]
fish = torch.stack([torch.from_numpy(layers) for layers in vectors], dim=1)
for layer, vectors in enumerate(functional.normalize(fish, dim=2)):
    near = vectors @ vectors.T
    apart = near[:2, 2:].mean()
    alike = f"verb and verb {near[0, 1]:.2f}, noun and noun {near[2, 3]:.2f}"
    print(f"layer {layer}: {alike}, verb and noun {apart:.2f}")
