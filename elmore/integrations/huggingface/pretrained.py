"""ElmoPreTrainedModel: convert models from and to elmore, save them with a card.

The softmax, its vocabulary and the options.json of an imported model are not converted, because a
transformers model has no place for them.
"""

from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import torch
from huggingface_hub import HfApi, ModelCard
from torch import Tensor, nn
from transformers import PreTrainedModel

from elmore import config
from elmore.errors import ConfigError
from elmore.integrations.huggingface.card import build_card
from elmore.integrations.huggingface.char_ids import boundary_ids
from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.source import Source, resolve_source
from elmore.integrations.huggingface.tokenizer import ElmoTokenizer
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.mix import ScalarMix
from elmore.model.saved_mix import SavedMix
from elmore.text.characters import Alphabet, ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import folder, warm
from elmore.weights.bundle import Bundle, Card
from elmore.weights.modules import meta_model
from elmore.weights.storage import Storage

_README = "README.md"


class ElmoPreTrainedModel(PreTrainedModel):
    """Base class of all models: initialization, conversion, saving, model card."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    auto_class = "AutoModel"
    pipeline_tag = "feature-extraction"

    @classmethod
    def from_elmore(
        cls,
        *sources: Source,
        mix: SavedMix | None = None,
        initial_state: Literal["zero", "warm"] = "zero",
        **settings: Any,  # those of ElmoConfig: num_labels, freeze, ...
    ) -> Self:
        """Build a model with the biLM of an elmore model.

        Args:
            sources: What `elmore.load` takes, or an `Embedder`; default: the bundled model.
            mix: Initial values of the scalar mix, such as one saved with an elmore model.
            initial_state: LSTM state before the first token: zeros, or the stored warm-up state.
            settings: Keyword arguments of `ElmoConfig`, such as `num_labels` or `freeze`.

        Returns:
            The model in evaluation mode. A classification head is initialized randomly.

        Raises:
            ConfigError: The mix does not have one weight per layer.
        """
        bundle = resolve_source(*sources)
        if initial_state == "warm":
            bundle = warm.add_warm_state(bundle)
        if mix is not None:
            settings["layer_norm"] = "token" if mix.layer_norm else False
        model: Any = cls(
            ElmoConfig(
                bilm=bundle.config,
                boundaries=boundary_ids(bundle.alphabet),
                initial_state=initial_state,
                card=config.as_dict(bundle.card),
                **settings,
            )
        )
        model.base_model.load_bundle(bundle, mix)
        return model.eval()

    def check_alphabet(self, alphabet: Alphabet) -> None:
        """Raise an error if a tokenizer cannot be that of this model.

        Args:
            alphabet: That of the tokenizer.

        Raises:
            ConfigError: It encodes sentence boundaries differently.
        """
        if boundary_ids(alphabet) != self.config.boundaries:
            raise ConfigError(
                "the tokenizer does not fit this model; pass the tokenizer that was made or saved "
                "with it"
            )

    def to_bundle(
        self, alphabet: Alphabet | None = None, vocabulary: Vocabulary | None = None
    ) -> Bundle:
        """Return the biLM and its mix as an elmore model, with copied weights (float32, CPU).

        Args:
            alphabet: That of the tokenizer; default: ELMo's bytes.
            vocabulary: That of the tokenizer, if it has one.

        Returns:
            The elmore model.

        Raises:
            ConfigError: The alphabet is not the one that the model was made with.
        """
        alphabet = alphabet or ByteAlphabet()
        self.check_alphabet(alphabet)
        elmo: Any = self.base_model
        network = meta_model(self.config.shape)
        weights = {name: _copy(part) for name, part in elmo.bilm.state_dict().items()}
        network.load_state_dict(weights, assign=True)
        return self._as_bundle(network.eval(), alphabet, vocabulary)

    def _as_bundle(
        self, bilm: BiLM, alphabet: Alphabet, vocabulary: Vocabulary | None = None
    ) -> Bundle:
        elmo: Any = self.base_model
        state = None
        if elmo.warm_output is not None:
            state = BiLMState(_copy(elmo.warm_output), _copy(elmo.warm_cell))
        return Bundle(
            bilm,
            alphabet,
            vocabulary,
            card=config.build(Card, self.config.card, "config.json: card"),
            warm_state=state,
            mixes=(elmo.mix.saved(),),
        )

    def save_elmore(
        self,
        destination: str | Path,
        tokenizer: ElmoTokenizer | None = None,
        *,
        overwrite: bool = False,
        storage: Storage = "float32",
    ) -> None:
        """Write the biLM and its mix as a folder that `elmore.load` takes.

        Args:
            destination: The folder to write.
            tokenizer: The tokenizer of this model; may be omitted for ELMo's bytes.
            overwrite: Replace an existing folder.
            storage: Number format of the weights.

        Raises:
            ConfigError: The tokenizer does not fit this model, or the folder exists.
        """
        alphabet = tokenizer.alphabet if tokenizer is not None else None
        bundle = self.to_bundle(alphabet, tokenizer.vocabulary if tokenizer is not None else None)
        folder.save(bundle, Path(destination), overwrite=overwrite, storage=storage)

    def model_card(self, name: str) -> ModelCard:
        """Return a card that describes this model and shows how to load it.

        Args:
            name: Name of the model on the hub, or of its folder.
        """
        elmo: Any = self.base_model
        bundle = self._as_bundle(elmo.bilm, ByteAlphabet())  # the card does not show the alphabet
        return build_card(bundle, name, auto_class=self.auto_class, pipeline_tag=self.pipeline_tag)

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does, and add a model card unless there is one."""
        super().save_pretrained(save_directory, *args, **kwargs)
        path = Path(save_directory) / _README
        if path.parent.is_dir() and not path.exists():
            path.write_text(str(self.model_card(path.parent.name)), encoding="utf-8")

    def _upload_modified_files(
        self, working_dir: str, repo_id: str, files_timestamps: dict, **kwargs: Any
    ) -> Any:
        """Upload our card instead of an empty one; a card of the repository is kept."""
        path = Path(working_dir) / _README
        if not HfApi().file_exists(repo_id, _README, token=kwargs.get("token")):
            card, requested = self.model_card(repo_id), ModelCard.load(path).data.get("tags") or []
            card.data["tags"] = list(dict.fromkeys([*card.data.get("tags"), *requested]))
            path.write_text(str(card), encoding="utf-8")
        parent: Any = super()
        return parent._upload_modified_files(working_dir, repo_id, files_timestamps, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:  # any nn.Module
        """Initialize weights that a checkpoint lacks; transformers leaves them uninitialized."""
        if isinstance(module, ScalarMix):
            nn.init.zeros_(module.weights)
            nn.init.ones_(module.gamma)
        elif getattr(module, "warm_output", None) is not None:
            nn.init.zeros_(module.warm_output)
            nn.init.zeros_(module.warm_cell)
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32, copy=True)
