"""Weights that are bytes: found where they are, and read as what they are."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from elmore.embed.continuous import ContinuousBatcher
from elmore.embed.loading import load
from elmore.model.bf16 import BiLMWithLayers
from elmore.model.config import LSTMConfig
from elmore.model.lstm import panels
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, StateReset
from elmore.model.stored import StoredLSTM, as_bytes, stored, with_bytes
from tests.support import toy_tasks

in_bytes = pytest.mark.skipif(not panels.available(), reason="no C compiler is here, or no vectors")


def rows_of_bytes(height: int, width: int, seed: int = 0) -> Tensor:
    """Draw a weight as a file holds it: bytes, one of them 127, and scales in half precision."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-127, 128, (height, width), generator=draw)
    numbers[:, seed % width] = 127
    scales = (torch.rand(height, generator=draw) * 1e-2 + 1e-5).half().float()
    return numbers * scales[:, None]


def layer(cells: int, width: int, *, projection: bool = True) -> ProjectedLSTM:
    config = LSTMConfig(
        num_layers=1,
        cell_dim=cells,
        output_dim=width,
        projection=projection,
        cell_clip=1.0,
        output_clip=0.5,
        forget_bias=1.0,
        skip_connections=False,
    )
    made = ProjectedLSTM(config)
    with torch.no_grad():
        for number, weight in enumerate(made.parameters()):
            if weight.dim() == 2:
                weight.copy_(rows_of_bytes(*weight.shape, seed=number) * 2.0**-3)
            else:
                weight.normal_()
    return made.eval()


def in_panels(plain: ProjectedLSTM) -> StoredLSTM:
    found = stored(plain)
    assert found is not None
    return StoredLSTM(plain, found)


@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 1000))
def test_bytes_and_scales_are_found_again(height, width, seed):
    weight = rows_of_bytes(height, width, seed)
    weight[0] = 0
    found = as_bytes(weight)
    assert found is not None
    numbers, scales = found
    assert torch.equal(numbers * scales[:, None], weight)


def test_others_are_no_bytes():
    weight = rows_of_bytes(5, 40)
    weight[3, 7] += 1e-6
    assert as_bytes(weight) is None
    assert as_bytes(torch.randn(4, 8)) is None
    assert as_bytes(rows_of_bytes(4, 8).double()) is None
    assert as_bytes(torch.full((2, 3), torch.nan)) is None
    assert as_bytes(torch.empty(0, 3)) is None
    tiny = torch.tensor([[190.0, 3.0, -150.0]]) * 2.0**-149  # no bytes, for the scale is rounded
    assert as_bytes(tiny) is None


@in_bytes
@given(st.integers(1, 110), st.integers(1, 90), st.integers(1, 150), st.sampled_from([1, 4]))
@settings(max_examples=60, deadline=None)
def test_a_product_of_bytes_is_that_of_the_weight(num_rows, height, width, parts):
    weight, rows = rows_of_bytes(parts * height, width), torch.randn(num_rows, width)
    found = as_bytes(weight)
    assert found is not None
    out = panels.multiply(panels.in_panels(*found, parts=parts), rows, height=len(weight))
    assert_close(out.double(), rows.double() @ weight.T.double(), rtol=1e-5, atol=1e-4)


def read_by(one: ProjectedLSTM, num_rows: int, *, projected: bool) -> tuple[Tensor, LSTMState]:
    """Draw inputs, some of them masked and some where another begins; read them."""
    cells, width = one.config.cell_dim, one.config.output_dim
    torch.manual_seed(num_rows)
    inputs, mask = torch.randn(num_rows, 6, width), torch.rand(num_rows, 6) < 0.8
    state = LSTMState(torch.randn(num_rows, width) / 4, torch.randn(num_rows, cells) / 4)
    resets = StateReset(torch.rand(num_rows, 6) < 0.2, state)
    with torch.no_grad():
        given_ = one.project_inputs(inputs) if projected else inputs
        return one(given_, mask, state, resets, projected=projected)


@in_bytes
@pytest.mark.parametrize(("cells", "width"), [(24, 24), (70, 70), (70, 33), (1500, 40)])
@pytest.mark.parametrize("num_rows", [1, 2, 5, 6, 7, 12, 13, 18, 19, 48, 49, 100])
@pytest.mark.parametrize("projected", [False, True])
def test_a_layer_reads_the_same_from_bytes(num_rows, cells, width, projected):
    plain = layer(cells, width, projection=width < cells)
    found, end = read_by(in_panels(plain), num_rows, projected=projected)
    plain.kernel = "reference"
    expected, last = read_by(plain, num_rows, projected=projected)
    assert_close(found, expected, rtol=0, atol=1e-5)
    assert_close(end, last, rtol=0, atol=1e-5)


@in_bytes
@pytest.mark.parametrize("begin", [0, 19, 55])
@pytest.mark.parametrize("num_rows", [1, 3, 6, 11, 18, 40])
def test_a_sentence_gets_the_same_bits_in_any_company(num_rows, begin):
    quick, here = in_panels(layer(200, 40)), slice(begin, begin + num_rows)
    inputs, mask = torch.randn(110, 5, 40), torch.rand(110, 5) < 0.9
    state = LSTMState(torch.randn(110, 40) / 4, torch.randn(110, 200) / 4)
    few = LSTMState(*(part[here] for part in state))
    with torch.no_grad():
        expected, last = quick(inputs, mask, state)
        found, end = quick(inputs[here], mask[here], few)
        assert torch.equal(quick.project_inputs(inputs)[here], quick.project_inputs(inputs[here]))
    assert torch.equal(found, expected[here])
    assert all(torch.equal(a, b[here]) for a, b in zip(end, last, strict=True))


@in_bytes
@pytest.mark.parametrize("num_rows", [1, 7, 60])
def test_it_gets_them_with_any_number_of_threads(num_rows, use_threads):
    quick = in_panels(layer(1600, 60))  # enough for a thread to be called
    inputs, mask = torch.randn(num_rows, 3, 60), torch.rand(num_rows, 3) < 0.9
    state = LSTMState(torch.randn(num_rows, 60) / 4, torch.randn(num_rows, 1600) / 4)
    found = []
    for threads in (1, 2, 3):
        use_threads(threads)
        with torch.no_grad():
            found.append([*quick(inputs, mask, state)[1], quick.project_inputs(inputs)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@in_bytes
def test_what_lies_otherwise_and_is_not_clipped_is_read_the_same():
    plain = layer(70, 33)
    plain.config = dataclasses.replace(plain.config, cell_clip=None, output_clip=None)
    quick = in_panels(plain)
    inputs, mask = torch.randn(4, 33, 7).permute(2, 0, 1), torch.rand(4, 7).T < 0.9
    state = LSTMState(torch.randn(33, 7).T, torch.randn(7, 140)[:, ::2])
    with torch.no_grad():
        driven = plain.project_inputs(inputs).transpose(1, 2).contiguous().transpose(1, 2)
        expected, _ = plain(inputs, mask, state)
        assert_close(quick(inputs, mask, state)[0], expected, rtol=0, atol=2e-5)
        assert_close(quick(driven, mask, state, projected=True)[0], expected, rtol=0, atol=2e-5)


@in_bytes
def test_what_is_asked_for_and_refused_is_that_of_any_layer(monkeypatch):
    plain = layer(24, 20)
    quick = in_panels(plain)
    state, mask = LSTMState(torch.zeros(2, 20), torch.zeros(2, 24)), torch.ones(2, 3).bool()
    inputs = torch.randn(2, 3, 20)
    for one in (plain, quick):
        with torch.no_grad():
            with pytest.raises(ValueError, match="inputs 20 wide, outputs 20 and cells 24"):
                one(torch.randn(2, 3, 9), mask, state)
            for others in ((20, 30), (16, 24)):
                wrong = LSTMState(*(torch.zeros(2, width) for width in others))
                with pytest.raises(ValueError, match="inputs 96 wide, outputs 20 and cells 24"):
                    one(torch.randn(2, 3, 96), mask, wrong, projected=True)
    with pytest.raises(ValueError, match="rows are 9 wide: expected 20"):
        quick.project_inputs(torch.randn(2, 3, 9))
    with pytest.raises(ValueError, match="a mask of resets must have the shape"):
        quick(inputs, mask, state, StateReset(torch.zeros(2, 4).bool(), state))
    monkeypatch.setattr(panels, "run", None)
    monkeypatch.setattr(panels, "multiply", None)
    quick.kernel = "reference"
    assert quick(quick.project_inputs(inputs), mask, state, projected=True)[0].shape == (2, 3, 20)


@in_bytes
def test_numbers_that_c_does_not_know_go_another_way(monkeypatch):
    quick = in_panels(layer(24, 20))
    state, mask = LSTMState(torch.zeros(2, 20), torch.zeros(2, 24)), torch.ones(2, 3).bool()
    inputs, twice = torch.randn(2, 3, 20), LSTMState(*(part.double() for part in state))
    monkeypatch.setattr(panels, "run", None)
    monkeypatch.setattr(panels, "multiply", None)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"dtype|Double"):
        quick(inputs, mask, state, StateReset(mask, twice))  # as any layer says
    quick = quick.double()
    inputs = inputs.double()
    with torch.no_grad():
        found, _ = quick(quick.project_inputs(inputs), mask, twice, projected=True)
        assert_close(found, quick(inputs, mask, twice)[0])


@in_bytes
def test_a_batch_of_bytes_reads_what_the_embedder_does(monkeypatch):
    elmo = load(device="cpu")
    batch = ContinuousBatcher(elmo.runtime)
    texts = [["The", "bank", "of", "the", "river"], ["It", "rains"], ["Go"] * 9]
    run, calls = panels.run, []

    def look(*args, **how):
        calls.append(args)
        return run(*args, **how)

    monkeypatch.setattr(panels, "run", look)
    (rows,) = batch.add([texts])
    while any(row.num_left for row in rows):
        batch.step()
    read = len(calls)
    assert read
    for row, sentence in zip(rows, elmo.embed(texts, layers="all"), strict=True):
        assert_close(row.layers, torch.from_numpy(sentence.vectors), rtol=0, atol=1e-5)
    assert len(calls) == read  # the embedder itself reads from floats


def test_without_a_compiler_a_model_of_bytes_is_left_alone(monkeypatch):
    bundled = load(device="cpu").bundle.model
    monkeypatch.setattr(panels, "available", lambda: False)
    assert with_bytes(bundled) is bundled


@in_bytes
def test_a_model_of_bytes_is_known_and_others_are_left_alone(tmp_path):
    bundled = load(device="cpu").bundle.model
    quick = with_bytes(bundled)
    assert isinstance(quick, BiLMWithLayers)
    assert all(isinstance(layer, StoredLSTM) for stack in quick.stacks for layer in stack)
    assert quick.stacks[0][0].recurrent is bundled.stacks[0][0].recurrent  # not kept twice
    other = load(toy_tasks.bilm(tmp_path), device="cpu").bundle.model
    assert with_bytes(other) is other
    one = layer(24, 24)
    with torch.no_grad():
        one.recurrent[3, 5] += 0.01
    assert stored(one) is None
