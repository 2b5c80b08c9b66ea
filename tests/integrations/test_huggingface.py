"""The classes for transformers: the vectors of `Embedder`, and everything saved comes back."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch

import elmore
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.integrations.allennlp import batch_to_ids
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.saved_mix import SavedMix
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make test-integrations"
)

from elmore.integrations.huggingface import (  # noqa: E402 -- what it needs may be missing
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
)

TEXTS = [
    "I left it at the bank .",
    "",
    "Naïve 日本 🙂 " + "x" * 70,
    "don't half \ud800 a character",
    " ".join(["long"] * 30),
    "One",
]
SMALL = BiLMConfig(
    characters=CharCNNConfig(embedding_dim=4, filters=((1, 4), (2, 8)), num_highways=1),
    lstm=LSTMConfig(cell_dim=10, output_dim=6),
)


@pytest.fixture(params=["bytes", "words", "lexicon", "lexicon without letters"])
def elmo(request, tmp_path, rng) -> Embedder:
    """A tiny model of each kind there is."""
    path = tmp_path / "model"
    if request.param == "bytes":
        options = bilm_options()
        return elmore.load(*write_bilm(path, options, bilm_weights(options, rng)), device="cpu")
    if request.param == "words":
        words = ["<S>", "</S>", "<UNK>", "bank", "the", "."]
        options = bilm_options(char_cnn=None) | {"n_tokens_vocab": len(words)}
        write_bilm(path, options, bilm_weights(options, rng, num_words=len(words)))
        (path / "words.txt").write_text("\n".join(words))
        sources = (path / "options.json", path / "weights.hdf5")
        return elmore.load(*sources, vocabulary=path / "words.txt", device="cpu")
    many_langs(path, rng, char_dim=0 if "without" in request.param else 4)
    return elmore.load(path, device="cpu")


def padded(tokenizer, texts=TEXTS, **choices):
    return tokenizer(texts, padding=True, return_tensors="pt", **choices)


def assert_the_vectors_of(elmo: Embedder, model: ElmoModel, tokenizer: ElmoTokenizer) -> None:
    with torch.no_grad():
        out = model(**padded(tokenizer), output_hidden_states=True)
    layers = torch.stack(out.hidden_states).numpy()
    for row, sentence in enumerate(elmo.embed(TEXTS, layers="all")):
        count = len(sentence.tokens)
        np.testing.assert_allclose(layers[:, row, :count], sentence.vectors, atol=1e-5)
        assert not layers[:, row, count:].any()
        assert out.mask[row].sum() == count
    for row, sentence in enumerate(elmo.embed(TEXTS)):
        count = len(sentence.tokens)
        np.testing.assert_allclose(out.mixed[row, :count].numpy(), sentence.vectors, atol=1e-5)
        assert not out.mixed[row, count:].any()
    assert torch.equal(out.last_hidden_state, out.hidden_states[-1])


def test_vectors_are_those_of_the_embedder_also_after_saving(elmo, tmp_path):
    model, tokenizer = ElmoModel.from_elmore(elmo), ElmoTokenizer.from_elmore(elmo)
    assert_the_vectors_of(elmo, model, tokenizer)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModel.from_pretrained(tmp_path / "saved")
    spelled = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert (type(again), type(spelled)) == (ElmoModel, ElmoTokenizer)
    assert_the_vectors_of(elmo, again, spelled)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_model_survives_a_round_trip_through_transformers(elmo, tmp_path):
    mix = SavedMix((0.5, -1.0, 2.0), 1.5, layer_norm=True)
    model = ElmoModel.from_elmore(elmo, mix=mix, initial_state="warm")
    model.save_elmore(tmp_path / "folder", ElmoTokenizer.from_elmore(elmo))
    result = elmore.load(tmp_path / "folder", initial_state="warm", device="cpu")
    warm = Embedder(elmo.bundle, initial_state="warm", device="cpu")
    assert result.bundle.mixes == (mix,)
    assert result.bundle.card == elmo.bundle.card
    for name, tensor in elmo.bundle.model.state_dict().items():
        assert torch.equal(tensor, result.bundle.model.state_dict()[name]), name
    with torch.no_grad():
        mixed = model(**padded(ElmoTokenizer.from_elmore(elmo))).mixed
    pairs = zip(warm.embed(TEXTS, layers=mix), result.embed(TEXTS, layers=mix), strict=True)
    for row, (before, after) in enumerate(pairs):
        np.testing.assert_array_equal(before.vectors, after.vectors)
        here = mixed[row, : len(before.tokens)].numpy()
        np.testing.assert_allclose(here, before.vectors, atol=1e-5)


def test_a_warm_state_and_a_trained_mix_are_saved(elmo, tmp_path):
    model = ElmoModel.from_elmore(elmo, initial_state="warm", last_only=True)
    with torch.no_grad():
        model.mix.gamma.fill_(3.0)
    model.save_pretrained(tmp_path)
    again = ElmoModel.from_pretrained(tmp_path)
    batch = padded(ElmoTokenizer.from_elmore(elmo))
    with torch.no_grad():
        assert torch.equal(again(**batch).mixed, model(**batch).mixed)
        assert torch.equal(again(**batch).mixed, 3 * again(**batch).last_hidden_state)


def test_the_bundled_model_needs_no_name():
    elmo = elmore.load(device="cpu")
    assert_the_vectors_of(elmo, ElmoModel.from_elmore(), ElmoTokenizer.from_elmore())


def test_a_randomly_initialized_model_uses_elmores_initialization():
    torch.manual_seed(3)
    state = ElmoModel(ElmoConfig(bilm=SMALL)).bilm.state_dict()
    assert (state["tokens.characters.highways.0.gate.bias"] == -2).all()
    assert state["tokens.characters.embedding.weight"].abs().max() > 0.5
    assert not state["forward_layers.0.bias"].any()


@pytest.mark.parametrize(
    ("kind", "auto", "labels"),
    [
        (
            ElmoForTokenClassification,
            transformers.AutoModelForTokenClassification,
            torch.tensor([[0, 1, -100], [2, -100, -100]]),
        ),
        (
            ElmoForSequenceClassification,
            transformers.AutoModelForSequenceClassification,
            torch.tensor([2, 0]),
        ),
    ],
)
class TestAHead:
    batch = padded(ElmoTokenizer(), ["a b c", "d"])

    def test_round_trip(self, kind, auto, labels, tmp_path):
        model = kind(ElmoConfig(bilm=SMALL, num_labels=3, layer_norm="token")).eval()
        model.save_pretrained(tmp_path)
        again = auto.from_pretrained(tmp_path)
        assert type(again) is kind
        with torch.no_grad():
            assert torch.equal(again(**self.batch).logits, model(**self.batch).logits)

    def test_loss_is_the_cross_entropy(self, kind, auto, labels):
        model = kind(ElmoConfig(bilm=SMALL, num_labels=3)).eval()
        with torch.no_grad():
            out = model(**self.batch, labels=labels)
            as_tuple = model(**self.batch, labels=labels, return_dict=False)
        picked = out.logits.reshape(-1, 3).log_softmax(dim=1)
        kept = labels.flatten() != -100
        expected = -picked[kept, labels.flatten()[kept]].mean()
        torch.testing.assert_close(out.loss, expected)
        assert torch.equal(as_tuple[1], out.logits)

    @pytest.mark.parametrize("freeze", [True, False])
    def test_the_gradient_reaches_what_learns(self, kind, auto, labels, freeze, tmp_path):
        kind(ElmoConfig(bilm=SMALL, num_labels=3, freeze=not freeze)).save_pretrained(tmp_path)
        model = kind.from_pretrained(tmp_path, freeze=freeze)
        model.train()
        assert model.elmo.bilm.training is not freeze
        model(**self.batch, labels=labels).loss.backward()
        for name, parameter in model.named_parameters():
            learns = not (freeze and ".bilm." in name)
            assert parameter.requires_grad is learns, name
            assert (parameter.grad is not None) is learns, name
        assert model.elmo.mix.weights.grad.any()
        assert model.elmo.mix.gamma.grad.any()

    def test_a_head_is_put_on_a_saved_model_without_one(self, kind, auto, labels, tmp_path):
        plain = ElmoModel(ElmoConfig(bilm=SMALL))
        plain.save_pretrained(tmp_path)
        model = kind.from_pretrained(tmp_path, num_labels=3)
        assert model.classifier.out_features == 3
        for name, tensor in plain.bilm.state_dict().items():
            assert torch.equal(tensor, model.elmo.bilm.state_dict()[name]), name
        assert model.classifier.weight.std() > 0

    def test_half_precision_is_supported(self, kind, auto, labels, tmp_path):
        model = kind(ElmoConfig(bilm=SMALL, num_labels=3)).eval()
        model.save_pretrained(tmp_path)
        small = kind.from_pretrained(tmp_path, dtype=torch.bfloat16)
        with torch.no_grad():
            result = small(**self.batch).logits
            assert result.dtype == torch.bfloat16
            torch.testing.assert_close(result.float(), model(**self.batch).logits, atol=0.1, rtol=0)


def test_several_labels_and_numbers_have_their_own_losses():
    batch = padded(ElmoTokenizer(), ["a b c", "d"])
    several = ElmoForSequenceClassification(
        ElmoConfig(bilm=SMALL, num_labels=3, problem_type="multi_label_classification")
    ).eval()
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    out = several(**batch, labels=labels)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(out.logits, labels)
    torch.testing.assert_close(out.loss, expected)
    number = ElmoForSequenceClassification(ElmoConfig(bilm=SMALL, num_labels=1)).eval()
    out = number(**batch, labels=torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(
        out.loss, (out.logits[:, 0] - torch.tensor([1.0, 2.0])).square().mean()
    )


def test_the_ids_of_allennlp_will_do():
    model = ElmoModel(ElmoConfig(bilm=SMALL)).eval()
    sentences = [["A", "naïve", "x" * 60], ["B"]]
    with torch.no_grad():
        ours = model(**padded(ElmoTokenizer(), sentences)).mixed
        assert torch.equal(model(batch_to_ids(sentences)).mixed, ours)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpu_gives_the_same_and_learns():
    model = ElmoForTokenClassification.from_elmore(initial_state="warm", freeze=False)
    batch = padded(ElmoTokenizer())
    with torch.no_grad():
        expected = model(**batch).logits
    model.cuda()
    result = model(**batch.to("cuda"), labels=batch["attention_mask"])
    torch.testing.assert_close(result.logits.detach().cpu(), expected, atol=1e-4, rtol=0)
    result.loss.backward()
    assert model.elmo.mix.weights.grad.any()
    with torch.autocast("cuda", torch.bfloat16):
        assert model(**batch).logits.isfinite().all()


def test_a_sentence_without_words_has_no_vectors():
    model, tokenizer = ElmoModel(ElmoConfig(bilm=SMALL)).eval(), ElmoTokenizer()
    assert model(**padded(tokenizer, ["", ""])).mixed.shape == (2, 0, 12)
    head = ElmoForSequenceClassification(ElmoConfig(bilm=SMALL)).eval()
    assert head(**padded(tokenizer, [""])).logits.isfinite().all()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([["The", "bank"]], "as ElmoTokenizer returns it with return_tensors='pt', found a list"),
        (torch.ones(2, 3, dtype=torch.long), r"found torch.int64 of shape \(2, 3\)"),
        (torch.ones(1, 1, 51, dtype=torch.long), r"\(sentences, words, 50\)"),
        (torch.full((1, 2, 50), 262), "between 1 and 261 where a word is, found 257 to 262"),
        (torch.tensor([[[0], [5]]]), "pad sentences on the right"),
        (torch.tensor([[[-1], [5]]]), "must not be negative, found -1"),
    ],
)
def test_invalid_ids_are_refused(ids, said):
    with pytest.raises(DataError, match=said):
        ElmoModel(ElmoConfig(bilm=SMALL))(ids)


def test_a_mask_of_another_shape_is_refused():
    ids = torch.ones(1, 3, 50, dtype=torch.long)
    with pytest.raises(DataError, match=r"attention_mask has shape \(1, 4\), .* \(1, 3\) words"):
        ElmoModel(ElmoConfig(bilm=SMALL))(ids, torch.ones(1, 4))


def test_invalid_settings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="initial_state must be 'zero' or 'warm', found 'cold'"):
        ElmoConfig(initial_state="cold")
    with pytest.raises(ConfigError, match="layer_norm must be False or 'token'"):
        ElmoConfig(layer_norm="allennlp")
    with pytest.raises(ConfigError, match="bilm: lstm: unknown key 'cel_dim'"):
        ElmoConfig(bilm={"lstm": {"cel_dim": 3}})
    with pytest.raises(ConfigError, match="this mix has 2 weights, the model 3"):
        ElmoModel.from_elmore(mix=SavedMix((0.0, 1.0), 1.0))


def test_an_elmore_folder_is_distinguished_from_a_transformers_folder(tmp_path):
    ElmoModel(ElmoConfig(bilm=SMALL)).save_elmore(tmp_path / "folder")
    with pytest.raises(ConfigError, match="call from_elmore instead of from_pretrained"):
        ElmoModel.from_pretrained(tmp_path / "folder")
    ElmoModel.from_elmore(tmp_path / "folder").save_pretrained(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="written by transformers; load it with"):
        elmore.load(tmp_path / "theirs")


def test_a_foreign_tokenizer_is_refused(tmp_path, rng):
    many_langs(tmp_path / "model", rng)
    model = ElmoModel.from_elmore(tmp_path / "model")
    with pytest.raises(ConfigError, match="the tokenizer does not fit this model"):
        model.save_elmore(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_the_card_says_what_the_model_is_and_a_written_one_is_left_alone(tmp_path):
    model = ElmoForTokenClassification.from_elmore()
    model.save_pretrained(tmp_path / "named")
    card = (tmp_path / "named" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\nlicense: cc-by-sa-4.0\n")
    assert "pipeline_tag: token-classification" in card
    assert "Project Gutenberg" in card
    assert 'AutoModelForTokenClassification.from_pretrained("named")' in card
    (tmp_path / "named" / "README.md").write_text("mine")
    model.save_pretrained(tmp_path / "named")
    assert (tmp_path / "named" / "README.md").read_text() == "mine"


class TestTheTokenizer:
    tokenizer = ElmoTokenizer()

    def test_one_text_and_several_are_told_apart(self):
        one = self.tokenizer("a bank .")
        assert np.shape(one["input_ids"]) == (3, 50)
        assert one["attention_mask"] == [1, 1, 1]
        assert self.tokenizer("a bank .", return_tensors="pt")["input_ids"].shape == (1, 3, 50)
        assert np.shape(self.tokenizer(["a bank ."])["input_ids"]) == (1, 3, 50)
        words = self.tokenizer(["a", "bank", "."], is_split_into_words=True)
        assert words["input_ids"] == one["input_ids"]
        several = self.tokenizer([["a", "bank", "."], ["a"]], is_split_into_words=True)
        assert several["input_ids"] == [one["input_ids"], one["input_ids"][:1]]
        assert self.tokenizer([])["input_ids"] == []
        assert self.tokenizer([], is_split_into_words=True)["input_ids"] == []

    def test_a_word_is_its_bytes_between_two_marks_one_above_those_of_training(self):
        (row,) = self.tokenizer("é")["input_ids"]
        assert row == [259, 0xC3 + 1, 0xA9 + 1, 260] + [0] * 46

    def test_words_have_numbers_and_places(self):
        result = self.tokenizer(
            ["Don't  go .", "Go"], padding=True, return_offsets_mapping=True, return_tensors="np"
        )
        assert result.tokens(0) == ["Do", "n't", "go", "."]
        assert result.word_ids(1) == [0, None, None, None]
        assert result.sequence_ids(1) == [0, None, None, None]
        assert [result.char_to_token(0, index) for index in (0, 4, 5, 8)] == [0, 1, None, 2]
        assert result.token_to_chars(0, 1) == (2, 5)
        assert result.token_to_chars(1, 3) is None
        assert result["offset_mapping"].tolist()[0] == [[0, 2], [2, 5], [7, 9], [10, 11]]
        assert result["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]

    def test_padding_and_truncation_are_those_of_transformers(self):
        texts = ["a b c d", "a"]
        shape = lambda **choices: np.shape(self.tokenizer(texts, **choices)["input_ids"])  # noqa: E731
        assert shape(padding=True) == (2, 4, 50)
        assert shape(padding="max_length", max_length=6) == (2, 6, 50)
        assert shape(padding=True, pad_to_multiple_of=8) == (2, 8, 50)
        assert shape(padding=True, truncation=True, max_length=2) == (2, 2, 50)
        left = ElmoTokenizer(truncation_side="left")(texts, truncation=True, max_length=2)
        assert left.tokens(0) == ["c", "d"]
        with pytest.raises(ValueError, match="padding=True"):
            self.tokenizer(texts, return_tensors="pt")

    def test_collators_pad_words_and_labels(self):
        features = [
            {**self.tokenizer(text), "labels": [1] * len(text.split())} for text in ("a b c", "d")
        ]
        collate = transformers.DataCollatorForTokenClassification(self.tokenizer)
        batch = collate(copy.deepcopy(features))
        assert batch["input_ids"].shape == (2, 3, 50)
        assert batch["labels"].tolist() == [[1, 1, 1], [1, -100, -100]]
        expected = padded(self.tokenizer, ["a b c", "d"])
        assert torch.equal(batch["input_ids"], expected["input_ids"])
        for feature in features:
            feature["labels"] = 1
        batch = transformers.DataCollatorWithPadding(self.tokenizer)(features)
        assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
        assert batch["labels"].tolist() == [1, 1]

    def test_encoded_words_can_be_decoded(self, elmo):
        tokenizer = ElmoTokenizer.from_elmore(elmo)
        result = padded(tokenizer, ["the the .", "the"])["input_ids"]
        assert tokenizer.decode(result, skip_special_tokens=True) == ["the the .", "the"]
        assert tokenizer.decode(result[1]) == "the <pad> <pad>"
        assert tokenizer.tokenize("don't") == ["do", "n't"]
        rows = tokenizer.convert_tokens_to_ids(["the", "."])
        assert tokenizer.convert_ids_to_tokens(rows) == ["the", "."]
        assert tokenizer.pad_token_id == 0

    @pytest.mark.parametrize("texts", [[""], ["", "the ."], ["the .", ""]])
    def test_texts_without_words_are_decoded_as_such(self, texts):
        rows = self.tokenizer(texts)["input_ids"]
        assert self.tokenizer.decode(rows) == self.tokenizer.batch_decode(rows) == texts
        assert self.tokenizer.decode([]) == ""

    def test_it_is_saved_pickled_and_printed(self, elmo, tmp_path):
        tokenizer = ElmoTokenizer.from_elmore(elmo, splitter="whitespace", model_max_length=3)
        tokenizer.save_pretrained(tmp_path)
        assert "vocabulary" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
        for again in (
            ElmoTokenizer.from_pretrained(tmp_path),
            pickle.loads(pickle.dumps(tokenizer)),
            copy.deepcopy(tokenizer),
        ):
            result = again(TEXTS, truncation=True)
            assert result["input_ids"] == tokenizer(TEXTS, truncation=True)["input_ids"]
            assert result.tokens(3) == ["don't", "half", "\ud800"]
            assert "ElmoTokenizer" in repr(again)

    @pytest.mark.parametrize(
        ("text", "choices", "said"),
        [
            ("a", {"text_pair": "b"}, "text pairs"),
            ("a b", {"is_split_into_words": True}, "expects lists of words, found 'a b'"),
            ([["a", 3]], {}, "found 3"),
            ([None], {}, "found 'None'"),
            ("a", {"return_overflowing_tokens": True}, "any length"),
        ],
    )
    def test_invalid_texts_are_refused(self, text, choices, said):
        with pytest.raises(DataError, match=said):
            self.tokenizer(text, **choices)

    @pytest.mark.parametrize("tensors", [None, "np", "pt"])
    def test_one_text_is_padded_without_a_batch(self, tensors):
        choices = {"padding": "max_length", "max_length": 4, "return_tensors": tensors}
        one = self.tokenizer("a b", return_special_tokens_mask=True)
        (row,) = self.tokenizer.pad([one], **choices | {"return_tensors": None})["input_ids"]
        padded = self.tokenizer.pad(one, **choices)
        assert np.asarray(padded["input_ids"]).tolist() == row
        assert np.asarray(padded["attention_mask"]).tolist() == [1, 1, 0, 0]
        assert np.asarray(padded["special_tokens_mask"]).tolist() == [0, 0, 1, 1]
        if tensors == "pt":
            assert padded["input_ids"].shape == (4, len(row[0]))
            again = self.tokenizer.pad(padded, padding="max_length", max_length=5)
            assert again["attention_mask"] == [1, 1, 0, 0, 0]

    def test_a_batch_that_begins_with_an_empty_text_is_a_batch(self):
        batch = self.tokenizer(["", "a b"])
        assert self.tokenizer.pad(batch)["attention_mask"] == [[0, 0], [1, 1]]
        assert self.tokenizer.pad(self.tokenizer([]))["input_ids"] == []

    def test_invalid_settings_are_refused(self, tmp_path):
        with pytest.raises(ConfigError, match="splitter must be"):
            ElmoTokenizer(splitter="bpe")
        with pytest.raises(ConfigError, match="padding_side must be 'right'"):
            ElmoTokenizer(padding_side="left")
        with pytest.raises(ConfigError, match="padding_side must be 'right'"):
            self.tokenizer(["a b", "c"], padding=True, padding_side="left")
        with pytest.raises(ConfigError, match="padding_side must be 'right'"):
            self.tokenizer.pad([self.tokenizer("a b"), self.tokenizer("c")], padding_side="left")
        with pytest.raises(ConfigError, match="kind 'words' with no vocabulary"):
            ElmoTokenizer(kind="words")


class TestPipelines:
    names = {0: "O", 1: "B-X", 2: "I-X"}  # noqa: RUF012

    def test_words_are_labelled_where_they_stand(self):
        model = ElmoForTokenClassification(ElmoConfig(bilm=SMALL, id2label=self.names)).eval()
        with torch.no_grad():
            model.classifier.bias.copy_(torch.tensor([0.0, 0.0, 9.0]))  # all are I-X
        tagger = transformers.pipeline(
            "token-classification",
            model=model,
            tokenizer=ElmoTokenizer(),
            pipeline_class=ElmoTokenClassificationPipeline,
            device="cpu",
        )
        result = tagger("Don't go .")
        assert [(one["word"], one["start"], one["end"]) for one in result] == [
            ("Do", 0, 2),
            ("n't", 2, 5),
            ("go", 6, 8),
            (".", 9, 10),
        ]
        assert {one["entity"] for one in result} == {"I-X"}
        for strategy in ("simple", "first", "average"):
            (group,) = tagger("Don't go .", aggregation_strategy=strategy)
            assert (group["entity_group"], group["start"], group["end"]) == ("X", 0, 10)
        (words,) = tagger([["No", "go", "."]], is_split_into_words=True)
        assert [one["start"] for one in words] == [0, 3, 6]
        assert [len(each) for each in tagger(["a b", "c"], batch_size=2)] == [2, 1]

    def test_texts_are_classified_in_batches_as_alone(self):
        model = ElmoForSequenceClassification(ElmoConfig(bilm=SMALL)).eval()
        choose = transformers.pipeline(
            "text-classification", model=model, tokenizer=ElmoTokenizer(), device="cpu"
        )
        together = choose(["a b c", "d"], batch_size=2)
        for one, text in zip(together, ["a b c", "d"], strict=True):
            assert one["score"] == pytest.approx(choose(text)[0]["score"], abs=1e-5)


def test_the_interface_of_transformers_is_complete(elmo):
    model, tokenizer = ElmoModel.from_elmore(elmo), ElmoTokenizer.from_elmore(elmo)
    known = elmo.bundle.alphabet
    words = getattr(known, "vocabulary", None)
    listed = list(words.words) if words else []
    assert bool(tokenizer)  # also where it lists no word
    assert len(tokenizer) == len(listed)
    assert tokenizer.get_vocab() == {word: number for number, word in enumerate(listed)}
    assert model.config.num_hidden_layers == elmo.num_layers - 1
    tokens = model.bilm.tokens
    table = tokens.words if tokens.characters is None else tokens.characters.embedding
    assert model.get_input_embeddings() is table
    assert tokenizer(["a b c", "d"], return_length=True)["length"] == [3, 1]
