"""Seeds, and where outside data is found."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "elmore", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("elmore")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The published tiny models with their reference vectors."""
    folder = os.environ.get("ELMORE_FIXTURES")
    if not folder:
        pytest.skip("ELMORE_FIXTURES is not set: the published fixtures are not here")
    return Path(folder)
