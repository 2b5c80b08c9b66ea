"""Weights that are bytes: found where they are, and read as what they are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from elmore.embed.embedder import load
from elmore.embed.flow import Flow
from elmore.model.config import LSTMConfig
from elmore.model.fast import FastBiLM
from elmore.model.lstm import ProjectedLSTM
from elmore.model.lstm_kernels import few_rows, in_c
from elmore.model.lstm_kernels.reference import LSTMState, Resets
from elmore.model.stored import StoredLSTM, as_bytes, stored, with_bytes
from tests.tasks import examples

in_bytes = pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")


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


@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 1000))
def test_bytes_and_scales_are_found_again(height, width, seed):
    weight = rows_of_bytes(height, width, seed)
    weight[0] = 0
    found = as_bytes(weight)
    assert found is not None
    assert torch.equal(found.numbers * found.scales[:, None], weight)


def test_others_are_no_bytes():
    weight = rows_of_bytes(5, 40)
    weight[3, 7] += 1e-6
    assert as_bytes(weight) is None
    assert as_bytes(torch.randn(4, 8)) is None
    assert as_bytes(rows_of_bytes(4, 8).double()) is None
    assert as_bytes(torch.full((2, 3), torch.nan)) is None
    assert as_bytes(torch.empty(0, 3)) is None
    tiny = torch.tensor([[190.0, 3.0, -150.0]]) * 2.0**-149  # no bytes, for the scale is rounded
    found = as_bytes(tiny)
    assert found is None or torch.equal(found.numbers * found.scales[:, None], tiny)


@in_bytes
@given(st.integers(1, 20), st.integers(1, 200), st.integers(1, 1024), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_product_of_bytes_is_that_of_the_weight(num_rows, height, width, columns):
    weight, rows = rows_of_bytes(height, width), torch.randn(num_rows, width)
    out = torch.full((height, num_rows) if columns else (num_rows, height), torch.nan)
    found = as_bytes(weight)
    assert found is not None
    few_rows.multiply(found, rows, out if columns else out.T)
    expected = weight.double() @ rows.T.double()
    assert_close((out if columns else out.T).double(), expected, rtol=1e-5, atol=1e-4)


@in_bytes
@pytest.mark.parametrize(("cells", "width"), [(24, 24), (70, 70), (70, 33), (1500, 40)])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 8, 9])
def test_a_layer_reads_the_same_from_bytes(num_rows, cells, width):
    plain = layer(cells, width, projection=width < cells)
    quick = StoredLSTM(plain, stored(plain))
    torch.manual_seed(num_rows)
    inputs, mask = torch.randn(num_rows, 6, width), torch.rand(num_rows, 6) < 0.8
    state = LSTMState(torch.randn(num_rows, width) / 4, torch.randn(num_rows, cells) / 4)
    resets = Resets(torch.rand(num_rows, 6) < 0.2, state)
    with torch.no_grad():
        for given_, driven in ((inputs, False), (plain.drive(inputs), True)):
            found, end = quick(given_, mask, state, resets, driven=driven)
            expected, last = plain(given_, mask, state, resets, driven=driven)
            assert_close(found, expected, rtol=0, atol=1e-5)
            assert_close(end, last, rtol=0, atol=1e-5)


@in_bytes
def test_what_is_asked_for_and_refused_is_that_of_any_layer(monkeypatch):
    plain = layer(24, 20)
    quick, state = (
        StoredLSTM(plain, stored(plain)),
        LSTMState(torch.zeros(2, 20), torch.zeros(2, 24)),
    )
    mask = torch.ones(2, 3, dtype=torch.bool)
    with torch.no_grad(), pytest.raises(ValueError, match="inputs 20 wide"):
        quick(torch.randn(2, 3, 9), mask, state)
    monkeypatch.setattr(few_rows, "run", None)
    quick.kernel = "reference"
    with torch.no_grad():
        assert quick(torch.randn(2, 3, 20), mask, state)[0].shape == (2, 3, 20)


@in_bytes
def test_a_flow_of_bytes_reads_what_the_embedder_does(monkeypatch):
    elmo = load(device="cpu")
    flow, texts = Flow(elmo), [["The", "bank", "of", "the", "river"], ["It", "rains"], ["Go"] * 9]
    given_bytes = []
    run = few_rows.run

    def look(*args, stored, **how):
        given_bytes.append(stored is not None)
        return run(*args, stored=stored, **how)

    monkeypatch.setattr(few_rows, "run", look)
    (rows,) = flow.join([texts])
    while any(row.left for row in rows):
        flow.advance()
    assert given_bytes
    assert all(given_bytes)
    monkeypatch.setattr(few_rows, "run", run)
    for row, sentence in zip(rows, elmo.embed(texts, layers="all"), strict=True):
        assert_close(row.layers, torch.from_numpy(sentence.vectors), rtol=0, atol=1e-5)


@in_bytes
def test_a_model_of_bytes_is_known_and_others_are_left_alone(tmp_path):
    bundled = load(device="cpu").bundle.model
    quick = with_bytes(bundled)
    assert isinstance(quick, FastBiLM)
    assert all(isinstance(layer, StoredLSTM) for stack in quick.stacks for layer in stack)
    assert quick.stacks[0][0].recurrent is bundled.stacks[0][0].recurrent  # not kept twice
    other = load(examples.bilm(tmp_path), device="cpu").bundle.model
    assert with_bytes(other) is other
    one = layer(24, 24)
    with torch.no_grad():
        one.recurrent[3, 5] += 0.01
    assert stored(one) is None
