"""From elmore to transformers and back: a bundle to the models and tokenizer here, or the reverse.

What transformers has no place for stays behind: the softmax, its vocabulary, and the options.json
a foreign model came with.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import torch

from elmore import config
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError
from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.spelling import boundaries
from elmore.model.bilm import BiLMState
from elmore.model.mix import SavedMix
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder, pretrained, warm
from elmore.weights.bundle import Bundle, Card, meta_model
from elmore.weights.storage import Storage

if TYPE_CHECKING:
    from elmore.integrations.huggingface.model import ElmoModel
    from elmore.integrations.huggingface.tokenizer import ElmoTokenizer

Source = str | Path | Embedder | Bundle


def opened(*sources: Source) -> Bundle:
    """Give a loaded model: whatever `elmore.load` takes, or an `Embedder` or bundle as it is."""
    if len(sources) == 1 and isinstance(sources[0], Embedder):
        return sources[0].bundle
    if len(sources) == 1 and isinstance(sources[0], Bundle):
        return sources[0]
    return pretrained.load(*(str(source) for source in sources))


class FromElmore:
    """The way in and the way out, for every model here."""

    @classmethod
    def from_elmore(
        cls,
        *sources: Source,
        mix: SavedMix | None = None,
        initial_state: Literal["zero", "warm"] = "zero",
        **settings: Any,  # those of ElmoConfig: num_labels, freeze, ...
    ) -> Self:
        """Take the biLM of a model of elmore's; without a name, the bundled one.

        `mix` is where the mix starts, such as one of a folder's own; a head is drawn anew.
        """
        bundle = opened(*sources)
        if initial_state == "warm":
            bundle = warm.add_warm_state(bundle)
        if mix is not None:
            settings["layer_norm"] = "token" if mix.layer_norm else False
        made_of = ElmoConfig(
            bilm=bundle.config,
            boundaries=boundaries(bundle.alphabet),
            initial_state=initial_state,
            card=config.as_dict(bundle.card),
            **settings,
        )
        made: Any = cast("Any", cls)(made_of)
        _fill(made.base_model, bundle, mix)
        return made.eval()

    def save_elmore(
        self,
        destination: str | Path,
        tokenizer: "ElmoTokenizer | None" = None,
        *,
        overwrite: bool = False,
        storage: Storage = "float32",
    ) -> None:
        """Write the biLM and its mix as a folder that `elmore.load` takes."""
        made = bundled(self, tokenizer)
        folder.save(made, Path(destination), overwrite=overwrite, storage=storage)


@torch.no_grad()
def _fill(model: "ElmoModel", bundle: Bundle, mix: SavedMix | None) -> None:
    model.bilm.load_state_dict(bundle.model.state_dict())
    if model.warm_output is not None and bundle.warm_state is not None:
        model.warm_output.copy_(bundle.warm_state.output)
        model.warm_cell.copy_(bundle.warm_state.cell)
    if mix is not None:
        if len(mix.weights) != len(model.mix.weights):
            raise ConfigError(
                f"this mix has {len(mix.weights)} weights, the model {len(model.mix.weights)}"
            )
        model.mix.weights.copy_(torch.tensor(mix.weights))
        model.mix.gamma.fill_(mix.gamma)


def described(model: Any) -> Bundle:  # any model here
    """Give what a model is as a bundle, all but its alphabet, over its own weights."""
    elmo: ElmoModel = model.base_model
    state = None
    if elmo.warm_output is not None:
        state = BiLMState(_plain(elmo.warm_output), _plain(elmo.warm_cell))
    return Bundle(
        elmo.bilm,
        ByteAlphabet(),
        card=config.build(Card, model.config.card, "config.json: card"),
        warm_state=state,
        mixes=(elmo.mix.saved(),),
    )


def bundled(model: Any, tokenizer: "ElmoTokenizer | None") -> Bundle:  # any model here
    """Give a bundle with a copy of the weights: in float32, on the CPU."""
    alphabet = tokenizer.alphabet if tokenizer is not None else ByteAlphabet()
    settings: ElmoConfig = model.config
    if boundaries(alphabet) != settings.boundaries:
        raise ConfigError(
            "this model and this tokenizer are not of one another; pass the tokenizer that was "
            "made or saved with the model"
        )
    network = meta_model(settings.shape)
    weights = model.base_model.bilm.state_dict()
    network.load_state_dict({name: _plain(part) for name, part in weights.items()}, assign=True)
    vocabulary = tokenizer.vocabulary if tokenizer is not None else None
    return replace(described(model), model=network.eval(), alphabet=alphabet, vocabulary=vocabulary)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", torch.float32, copy=True)
