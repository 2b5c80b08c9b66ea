"""ELMo embeddings for Flair, to stack with others and to train taggers on.

    from elmore.integrations.flair import ElmoEmbeddings

    ElmoEmbeddings().embed(Sentence("I left it at the bank ."))

The biLM is frozen, and Flair stores the vectors of a token like those of static word embeddings. A
saved Flair model holds the name of the biLM, not its weights: import this module before you load
one.
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
        "docs/integrations/flair.md describes"
    ) from error

__all__ = ["ElmoEmbeddings"]


@register_embeddings
class ElmoEmbeddings(TokenEmbeddings):
    """Embed every token of a sentence.

    Args:
        model: What `elmore.load` takes; default: the bundled model.
        layers: "average", "top", a number, or "all": the layers of a token concatenated, as in
            Flair's former ELMoEmbeddings.

    Raises:
        ConfigError: The model has no such layers.
        WeightsError: The model cannot be loaded.
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
        """Width of a vector."""
        stacked = self._elmo.num_layers if self._layers == "all" else 1
        return stacked * self._elmo.width

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> list[Sentence]:
        texts = [[token.text for token in sentence] for sentence in sentences]
        results = self._elmo.embed(texts, layers=self._layers)
        for sentence, embedded in zip(sentences, results, strict=True):
            vectors = torch.from_numpy(embedded.vectors).to(flair.device)
            if self._layers == "all":
                vectors = vectors.transpose(0, 1).flatten(1)  # (T, L * 2D)
            for token, vector in zip(sentence, vectors, strict=True):
                token.set_embedding(self.name, vector)
        return sentences

    def to_params(self) -> dict[str, Any]:
        """Return the arguments that rebuild this embedding."""
        return {"model": list(self._model), "layers": self._layers, "name": self.name}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoEmbeddings":
        """Rebuild an embedding from `to_params`."""
        embeddings = cls(*params["model"], layers=params["layers"])
        embeddings.name = params["name"]  # a stack renames its parts
        return embeddings
