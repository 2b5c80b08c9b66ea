"""ELMo vectors for Flair: an embedding like its others, to stack and to train taggers on.

    from elmore.integrations.flair import ElmoEmbeddings

    ElmoEmbeddings().embed(Sentence("I left it at the bank ."))

The biLM is frozen, and Flair keeps the vectors of a token as it keeps those of its own word
embeddings. A saved Flair model holds the name of the biLM, not its weights: import this file before
you load one.
"""

from typing import Any

import torch

from elmore.embed.loading import load
from elmore.embed.outputs import check_layers, parse_layers
from elmore.errors import MissingPackageError

try:
    import flair
    from flair.data import Sentence
    from flair.embeddings import TokenEmbeddings
    from flair.embeddings.base import register_embeddings
except ImportError as error:
    raise MissingPackageError(
        f"elmore.integrations.flair needs {error.name}: pip install flair, as "
        "docs/integrations/flair.md tells"
    ) from error

__all__ = ["ElmoEmbeddings"]


@register_embeddings
class ElmoEmbeddings(TokenEmbeddings):
    """A vector for every token of a sentence.

    `model` is what `elmore.load` takes. `layers` is "average", "top", a number, or "all": then the
    layers of a token stand one after another, as in Flair's own ELMoEmbeddings of old.
    """

    embeddings_name = "elmore.ElmoEmbeddings"

    def __init__(self, *model: str, layers: str | int = "average") -> None:
        self.name = f"elmore-{'-'.join(model) or 'english'}-{layers}"
        self.static_embeddings = True
        super().__init__()
        self._model, self._layers = model, parse_layers(str(layers))
        self._elmo = load(*model, device=str(flair.device))
        check_layers(self._layers, self._elmo.num_layers)
        self.eval()

    @property
    def embedding_length(self) -> int:
        """How wide a vector is."""
        stacked = self._elmo.num_layers if self._layers == "all" else 1
        return stacked * self._elmo.width

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> list[Sentence]:
        texts = [[token.text for token in sentence] for sentence in sentences]
        results = self._elmo.embed(texts, layers=self._layers)
        for sentence, found in zip(sentences, results, strict=True):
            vectors = torch.from_numpy(found.vectors).to(flair.device)
            if self._layers == "all":
                vectors = vectors.transpose(0, 1).flatten(1)  # (T, L * 2D)
            for token, vector in zip(sentence, vectors, strict=True):
                token.set_embedding(self.name, vector)
        return sentences

    def to_params(self) -> dict[str, Any]:
        """Say how to make the same again."""
        return {"model": list(self._model), "layers": self._layers, "name": self.name}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoEmbeddings":
        """Make it again."""
        embeddings = cls(*params["model"], layers=params["layers"])
        embeddings.name = params["name"]  # a stack renames its parts
        return embeddings
