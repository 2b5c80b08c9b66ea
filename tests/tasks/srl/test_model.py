import itertools

import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.tasks import registry
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.srl.data import Frame, SRLExample
from elmore.tasks.srl.model import UNLABELLED, SRLHead, SRLModelConfig

LABELS = ["B-A0", "B-V", "I-A0", "O"]
SMALL = SRLModelConfig(hidden_dim=6, num_layers=2, indicator_dim=3, finder_dim=4)
EXAMPLES = [
    SRLExample(["a", "b", "c", "d"], [Frame(1, "b.01", ["B-A0", "B-V", "B-A0", "I-A0"])]),
    SRLExample(["e"], []),
    SRLExample(
        ["a", "b", "c"],
        [Frame(0, "a.01", ["B-V", "O", "O"]), Frame(2, "c.01", ["B-A0", "I-A0", "B-V"])],
    ),
]


def solver():
    kind = registry.find_task("srl")
    return kind(registry.load_recipe(kind))


def built(above: int = 0) -> SRLHead:
    return SRLHead(SMALL, Widths(5, above), LABELS).eval()


def embedded(lengths, above: int = 0, seed: int = 1) -> PaddedTokens:
    torch.manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    shape = (*mask.shape, 5 + above)
    vectors = torch.randn(shape) * mask[:, :, None]
    return PaddedTokens(vectors[:, :, :5], mask, vectors[:, :, 5:])


def cut(whole: PaddedTokens, row: int, length: int) -> PaddedTokens:
    return PaddedTokens(*(part[row : row + 1, :length] for part in whole))


def features(examples=EXAMPLES, *, with_gold: bool = True):
    return solver().make_features(examples, LABELS, with_gold=with_gold)


def test_features_are_a_row_for_each_predicate():
    result = features()
    assert result["rows"].tolist() == [0, 2, 2]
    assert result["predicates"].tolist() == [1, 0, 2]
    assert result["is_predicate"].int().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]]
    none = UNLABELLED
    assert result["tags"].tolist() == [[0, 1, 0, 2], [1, 3, 3, none], [0, 2, 1, none]]
    assert set(features(with_gold=False)) == {"rows", "predicates"}


def test_the_loss_is_the_sum_over_each_sentence_by_itself():
    model, whole = built(), embedded([4, 1, 3])
    total, count = model(whole, features())
    # 4 + 3 + 3 labels, and 4 + 1 + 3 times whether a token is a predicate
    assert count.item() == 18
    parts = [
        model(cut(whole, row, len(example.tokens)), features([example]))
        for row, example in enumerate(EXAMPLES)
    ]
    assert_close(total, sum(part.total for part in parts))
    assert sum(part.count.item() for part in parts) == 18


def test_a_batch_without_a_predicate_teaches_the_finder_and_leaves_no_weight_out():
    model = built()
    total, count = model(cut(embedded([4, 1, 3]), 1, 1), features(EXAMPLES[1:2]))
    assert count.item() == 1
    total.backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert not any(weight.grad.any() for weight in model.encoder.parameters())
    assert all(weight.grad.any() for weight in model.finder.scores.parameters())


def test_the_encoder_knows_which_token_is_the_predicate():
    model, whole = built(), embedded([4])
    scores = model._labels(whole, torch.tensor([0, 0]), torch.tensor([1, 2]))
    assert (scores[0] - scores[1]).abs().max() > 1e-3


def test_labels_are_those_of_the_best_path_that_is_bio():
    model, whole = built(), embedded([4, 3], seed=3)
    torch.nn.init.normal_(model.scores.bias, std=2.0)
    given = {"rows": torch.tensor([0, 0, 1]), "predicates": torch.tensor([1, 2, 0])}
    scores = model._labels(whole, **given).tolist()
    frames = model.predict(whole, given)
    predicted = [
        next(frame["tags"] for frame in frames[row] if frame["predicate"] == predicate)
        for row, predicate in zip(given["rows"].tolist(), given["predicates"].tolist(), strict=True)
    ]
    for tags, seen, length in zip(predicted, scores, (4, 4, 3), strict=True):
        paths = [
            path
            for path in itertools.product(LABELS, repeat=length)
            if all(
                after != "I-A0" or before in ("B-A0", "I-A0")
                for before, after in itertools.pairwise(("", *path))
            )
        ]
        assert len(paths) < len(LABELS) ** length
        value = {
            path: sum(seen[t][LABELS.index(tag)] for t, tag in enumerate(path)) for path in paths
        }
        assert tags == list(max(paths, key=value.__getitem__))


def test_frames_are_those_given_and_those_found():
    model, whole = built(), embedded([4, 1, 3])
    result = model.finder(whole) > 0
    frames = model.predict(whole, features(with_gold=False))
    for row, (example, some) in enumerate(zip(EXAMPLES, frames, strict=True)):
        places = {frame["predicate"] for frame in some if frame["found"]}
        assert places == {i for i in range(len(example.tokens)) if result[row, i]}
        given = [frame["predicate"] for frame in some if frame["given"]]
        assert given == [frame.predicate for frame in example.frames]
        assert all(len(frame["tags"]) == len(example.tokens) for frame in some)
        assert all(frame["given"] or frame["found"] for frame in some)


def test_raw_text_gets_frames_for_what_is_found_alone():
    model, whole = built(), embedded([4, 1, 3])
    with torch.no_grad():
        model.finder.scores.bias.fill_(100.0)
    nothing = features([SRLExample(e.tokens, []) for e in EXAMPLES], with_gold=False)
    places = [[f["predicate"] for f in some] for some in model.predict(whole, nothing)]
    assert places == [[0, 1, 2, 3], [0], [0, 1, 2]]
    with torch.no_grad():
        model.finder.scores.bias.fill_(-100.0)
    assert model.predict(whole, nothing) == [[], [], []]


def test_padding_other_texts_and_chunks_change_nothing(monkeypatch):
    from elmore.tasks.srl import model as module

    model, whole = built(), embedded([4, 1, 3])
    together = model.predict(whole, features(with_gold=False))
    for row, example in enumerate(EXAMPLES):
        alone = model.predict(
            cut(whole, row, len(example.tokens)), features([example], with_gold=False)
        )
        assert alone == together[row : row + 1]
    monkeypatch.setattr(module, "_BATCH_TOKENS", 1)
    assert model.predict(whole, features(with_gold=False)) == together


def test_layers_at_the_output_of_the_encoder_are_used():
    model, whole = built(above=2), embedded([4, 1, 3], above=2)
    other = whole._replace(output_elmo=whole.output_elmo + 1)
    rows = torch.tensor([0])
    assert (model._labels(whole, rows, rows) - model._labels(other, rows, rows)).abs().max() > 1e-3
    assert model(whole, features()).total.isfinite()


def test_a_sentence_of_no_tokens_has_no_frames():
    nothing = PaddedTokens(
        torch.zeros(1, 0, 5), torch.zeros(1, 0, dtype=torch.bool), torch.zeros(1, 0, 0)
    )
    assert built().predict(nothing, features([SRLExample([], [])], with_gold=False)) == [[]]


def test_bfloat16_is_supported():
    model, whole = built().bfloat16(), embedded([4, 1, 3])
    rounded = PaddedTokens(whole.vectors.bfloat16(), whole.mask, whole.output_elmo.bfloat16())
    model(rounded, features()).total.backward()
    assert len(model.predict(rounded, features(with_gold=False))) == 3


@pytest.mark.parametrize("wrong", [{"num_layers": 0}, {"dropout": 1.0}, {"finder_dim": 0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"model.{next(iter(wrong))} must be"):
        SRLModelConfig(**wrong)


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ("B-A0 B-V I-V O B-V", "B-A0 B-V I-V O O"),
        ("B-V O O O O", "O B-V O O O"),
        ("B-V B-A1 I-A1 O B-C-V", "O B-A1 I-A1 O B-C-V"),
    ],
)
def test_the_v_of_a_frame_is_its_predicates_own(tags, told):
    srl = solver()
    example = srl.example_from_text("Ann left off to rest", tokenized=True)
    result = [{"predicate": 1, "given": False, "found": True, "tags": tags.split()}]
    frame = {"predicate": 1, "tags": told.split()}
    assert srl.to_dict(example, result)["frames"] == [frame]
    assert srl.format_text(example, result) == srl.format_text(example, [frame])


def test_frames_are_shown_on_one_line():
    srl = solver()
    example = srl.example_from_text("Ann Lee left to rest", tokenized=True)
    assert example == SRLExample(["Ann", "Lee", "left", "to", "rest"], [])
    leave = {"predicate": 2, "tags": ["B-A0", "I-A0", "B-V", "B-AM-PRP", "I-AM-PRP"]}
    rest = {"predicate": 4, "tags": ["B-A0", "I-A0", "O", "O", "B-V"]}
    assert srl.format_text(example, [leave, rest]) == (
        "left: [Ann Lee A0] [left V] [to rest AM-PRP]; rest: [Ann Lee A0] left to [rest V]"
    )
    assert srl.format_text(example, []) == "Ann Lee left to rest"
    result = [{"given": False, "found": True, **leave}]
    assert srl.to_dict(example, result) == {"tokens": example.tokens, "frames": [leave]}
