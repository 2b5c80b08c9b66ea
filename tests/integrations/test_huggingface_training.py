"""Real small trainings with `Trainer`: parts of speech, with elmore and without."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.tasks.pos import data

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make test-integrations"
)
pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")

from elmore.integrations.huggingface import (  # noqa: E402 -- what it needs may be missing
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
)

SMALL = BiLMConfig(
    characters=CharCNNConfig(embedding_dim=4, filters=((1, 4), (2, 8)), num_highways=1),
    lstm=LSTMConfig(cell_dim=10, output_dim=6),
)


def trainer(model, folder, train, held_out=None, collator=None, **choices):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 64,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "seed": 0,
    } | choices
    return transformers.Trainer(
        model,
        transformers.TrainingArguments(**settings),
        data_collator=collator or transformers.DataCollatorForTokenClassification(ElmoTokenizer()),
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=accuracy,
    )


def accuracy(found) -> dict[str, float]:
    kept = found.label_ids != -100
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids)[kept].mean())}


class WithoutElmore(nn.Module):
    """The same head over a vector of its own for each word of the training text."""

    def __init__(self, train, num_labels: int, width: int = 512) -> None:
        super().__init__()
        words = {tuple(row) for text in train for row in text["input_ids"]}
        self.number = {word: i for i, word in enumerate(sorted(words), start=1)}
        self.vectors = nn.Embedding(len(words) + 1, width)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(width, num_labels)

    def forward(self, input_ids, attention_mask=None, labels=None):
        rows = input_ids.flatten(0, 1).tolist()
        known = torch.tensor([self.number.get(tuple(row), 0) for row in rows])
        logits = self.classifier(self.dropout(self.vectors(known.view(input_ids.shape[:2]))))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


@pytest.fixture(scope="module")
def tagged():
    folder = os.environ.get("ELMORE_DATA")
    if not folder:
        pytest.skip("ELMORE_DATA is not set: the treebank is not here")
    path = Path(folder) / "tasks" / "pos"
    sentences = data.read_conllu(path / "en_ewt-ud-dev.conllu.xz", column="upos")
    kept = [sentence for sentence in sentences if 4 <= len(sentence.tokens) <= 12][:200]
    tags = sorted({tag for sentence in kept for tag in sentence.tags})
    spelled = ElmoTokenizer()([sentence.tokens for sentence in kept], is_split_into_words=True)
    features = [
        {"input_ids": ids, "labels": [tags.index(tag) for tag in sentence.tags]}
        for ids, sentence in zip(spelled["input_ids"], kept, strict=True)
    ]
    return features[:120], features[120:], tags


def test_words_are_tagged_better_with_elmore_than_without(tagged, tmp_path):
    train, held_out, tags = tagged
    scores = {}
    torch.manual_seed(0)
    for name, model in (
        ("with", ElmoForTokenClassification.from_elmore(num_labels=len(tags))),
        ("without", WithoutElmore(train, len(tags))),
    ):
        run = trainer(model, tmp_path, train, held_out, num_train_epochs=3)
        run.train()
        scores[name] = run.evaluate()["eval_accuracy"]
    assert scores["with"] > 0.8 > 0.65 > scores["without"]


def test_training_changes_the_mix_and_leaves_a_frozen_bilm_unchanged(tmp_path):
    train = [
        {"input_ids": ElmoTokenizer()("a b c")["input_ids"], "labels": [0, 1, 2]},
        {"input_ids": ElmoTokenizer()("b a")["input_ids"], "labels": [1, 0]},
    ] * 8
    for freeze in (True, False):
        model = ElmoForTokenClassification(ElmoConfig(bilm=SMALL, num_labels=3, freeze=freeze))
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        trainer(model, tmp_path, train, max_steps=3).train()
        for name, tensor in model.state_dict().items():
            stays = freeze and ".bilm." in name
            assert torch.equal(tensor, before[name]) is stays, name


def test_training_resumes_from_a_checkpoint_and_the_best_one_is_loaded(tmp_path):
    tokenizer = ElmoTokenizer()
    train = [
        {"input_ids": tokenizer(text)["input_ids"], "labels": label}
        for text, label in (("good good", 1), ("bad", 0)) * 16
    ]
    model = ElmoForSequenceClassification(
        ElmoConfig(bilm=SMALL, freeze=False, classifier_dropout=0.0)
    )
    collator = transformers.DataCollatorWithPadding(tokenizer)
    settings = {
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "load_best_model_at_end": True,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 5,
        "learning_rate": 0.03,
    }
    run = trainer(model, tmp_path, train, train, collator, **settings)
    run.train()
    assert run.evaluate()["eval_accuracy"] == 1.0
    again = trainer(
        ElmoForSequenceClassification.from_pretrained(tmp_path / "checkpoint-2"),
        tmp_path,
        train,
        train,
        collator,
        **settings,
    )
    assert again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2")).global_step == 10
    for name, tensor in again.model.state_dict().items():
        assert torch.isfinite(tensor).all(), name
    run.save_model(str(tmp_path / "saved"))
    result = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, result.state_dict()[name]), name
