"""elmore inside Hugging Face transformers: configuration, tokenizer, models, Auto classes, hub.

    from elmore.integrations.huggingface import ElmoModel, ElmoTokenizer

    tokenizer = ElmoTokenizer.from_elmore()          # the bundled model; else a name, a folder, ...
    model = ElmoModel.from_elmore()
    out = model(**tokenizer(["I left it at the bank ."], return_tensors="pt"))
    out.mixed                                        # (sentences, words, width)

Importing this package registers its classes with `AutoConfig`, `AutoTokenizer`, `AutoModel` and the
Auto classes of the two heads. Nothing inside elmore imports it.
"""

from elmore.errors import MissingPackageError

try:
    import transformers
except ImportError as error:
    raise MissingPackageError(
        "elmore.integrations.huggingface needs transformers: pip install 'elmore[hf]'"
    ) from error

from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.heads import (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
)
from elmore.integrations.huggingface.model import ElmoModel, ElmoOutput
from elmore.integrations.huggingface.pipeline import ElmoTokenClassificationPipeline
from elmore.integrations.huggingface.pretrained import ElmoPreTrainedModel
from elmore.integrations.huggingface.tokenizer import ElmoTokenizer

__all__ = [
    "ElmoConfig",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoOutput",
    "ElmoPreTrainedModel",
    "ElmoTokenClassificationPipeline",
    "ElmoTokenizer",
]

transformers.AutoConfig.register(ElmoConfig.model_type, ElmoConfig, exist_ok=True)
transformers.AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer, exist_ok=True)
for _auto, _model in (
    (transformers.AutoModel, ElmoModel),
    (transformers.AutoModelForTokenClassification, ElmoForTokenClassification),
    (transformers.AutoModelForSequenceClassification, ElmoForSequenceClassification),
):
    _auto.register(ElmoConfig, _model, exist_ok=True)
