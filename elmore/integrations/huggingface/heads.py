"""Classification heads: one linear layer over the mix, per word or per text.

Shapes: B sentences, T words, C ids per word, K labels.
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils import can_return_tuple

from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.model import ElmoModel
from elmore.integrations.huggingface.pretrained import ElmoPreTrainedModel
from elmore.tasks.layers.pooling import masked_mean


class _Head(ElmoPreTrainedModel):
    """ElmoModel with a linear classifier."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.elmo = ElmoModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
        self.train(self.training)


class ElmoForTokenClassification(_Head):
    """Predict a label for each word, such as named entities or parts of speech."""

    auto_class = "AutoModelForTokenClassification"
    pipeline_tag = "token-classification"

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "B T C"],
        attention_mask: Int[Tensor, "B T"] | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,  # passed to the loss by Trainer
    ) -> TokenClassifierOutput:
        """Return `logits` (B, T, K), and the loss over the labels that are not -100."""
        out = self.elmo(input_ids, attention_mask, output_hidden_states, return_dict=True)
        logits = self.classifier(self.dropout(out.mixed))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)


class ElmoForSequenceClassification(_Head):
    """Predict a label, several labels or a number for each text, from the mean of its words."""

    auto_class = "AutoModelForSequenceClassification"
    pipeline_tag = "text-classification"

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "B T C"],
        attention_mask: Int[Tensor, "B T"] | None = None,
        labels: Int[Tensor, " B"] | Float[Tensor, "B K"] | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,  # passed to the loss by Trainer
    ) -> SequenceClassifierOutput:
        """Return `logits` (B, K), and the loss selected by `config.problem_type`."""
        out = self.elmo(input_ids, attention_mask, output_hidden_states, return_dict=True)
        logits = self.classifier(self.dropout(masked_mean(out.mixed, out.mask)))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels, logits, self.config, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)
