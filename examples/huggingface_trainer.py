"""Train a tagger with Hugging Face's Trainer on ELMo: who does something to whom?

pip install "elmore[hf]"
python examples/huggingface_trainer.py
"""

import tempfile

from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments

from elmore.integrations.huggingface import ElmoForTokenClassification, ElmoTokenizer

LABELS = ["other", "who", "whom"]
TAGGED = """
The/other dog/who chased/other the/other cat/whom ./other
A/other teacher/who praised/other her/other pupil/whom ./other
The/other pupil/who thanked/other the/other teacher/whom ./other
My/other cat/who bit/other a/other dog/whom ./other
The/other king/who saw/other the/other thief/whom ./other
A/other thief/who robbed/other the/other king/whom ./other
The/other nurse/who helped/other a/other soldier/whom ./other
One/other soldier/who loved/other the/other nurse/whom ./other
"""
NEW = "The farmer met a neighbour ."


def main() -> None:
    tokenizer = ElmoTokenizer.from_elmore()
    model = ElmoForTokenClassification.from_elmore(
        id2label=dict(enumerate(LABELS)), label2id={name: i for i, name in enumerate(LABELS)}
    )
    examples = []
    for line in TAGGED.strip().splitlines():
        words, labels = zip(*(token.rsplit("/", 1) for token in line.split()), strict=True)
        encoded = tokenizer(list(words), is_split_into_words=True)
        examples.append({**encoded, "labels": [LABELS.index(name) for name in labels]})

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=10,
            learning_rate=1e-2,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        )
        collator = DataCollatorForTokenClassification(tokenizer)
        Trainer(model, settings, train_dataset=examples, data_collator=collator).train()

    batch = tokenizer(NEW, return_tensors="pt").to(model.device)
    predicted = model.eval()(**batch).logits[0].argmax(dim=-1).tolist()
    for word, label in zip(batch.tokens(), predicted, strict=True):
        print(f"  {word:10} {LABELS[label]}")
    weights = ", ".join(f"{weight:.2f}" for weight in model.elmo.mix.normalized_weights().tolist())
    print(f"  layer weights {weights}")


if __name__ == "__main__":
    main()
