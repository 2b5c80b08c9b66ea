from pathlib import Path

import pytest
import torch

from elmore import config
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig

RECIPES = Path(config.__file__).parent / "recipes" / "bilm"


def num_parameters(name: str) -> int:
    with torch.device("meta"):
        model = BiLM(config.read(BiLMConfig, RECIPES / f"{name}.toml"))
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)]
)
def test_a_published_size_has_its_published_number_of_parameters(name, count):
    assert num_parameters(name) == count


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_builds(path):
    assert num_parameters(path.stem) > 0
