"""To the hub and back, against a stand-in for it: what huggingface_hub says, over real HTTP.

Its address is read from the environment when huggingface_hub is imported: so in another process.
"""

import os
import subprocess
import sys

import pytest

from tests.support import fake_hub

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")

CODE = """
import os, sys, torch
from huggingface_hub import HfApi, ModelCard
from transformers import AutoModelForTokenClassification, AutoTokenizer
from elmore.integrations.huggingface import *
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig

shape = BiLMConfig(
    characters=CharCNNConfig(embedding_dim=4, filters=((1, 4), (2, 8)), num_highways=1),
    lstm=LSTMConfig(cell_dim=10, output_dim=6),
)
card = {"name": "tiny", "licence": "MIT", "data": "a few words"}
model = ElmoForTokenClassification(ElmoConfig(bilm=shape, card=card)).eval()
ElmoTokenizer(model_max_length=7).push_to_hub("someone/tiny")
model.push_to_hub("someone/tiny", tags=["mine"])
shown = ModelCard.load("someone/tiny")
assert (shown.data.license, shown.data.tags) == ("mit", ["elmo", "elmore", "mine"])
assert "| training data | a few words |" in shown.text
assert 'from_pretrained("someone/tiny")' in shown.text

tokenizer = AutoTokenizer.from_pretrained("someone/tiny")
assert tokenizer.model_max_length == 7
found = AutoModelForTokenClassification.from_pretrained("someone/tiny")
for name, tensor in model.state_dict().items():
    assert torch.equal(tensor, found.state_dict()[name]), name

HfApi().upload_file(
    path_or_fileobj=b"---\\nlicense: mit\\n---\\n# Mine\\n",
    path_in_repo="README.md",
    repo_id="someone/tiny",
)
model.push_to_hub("someone/tiny", commit_message="Once more")
try:
    ElmoModel.from_pretrained("someone/absent")
except OSError as error:
    print("absent:", type(error).__name__)
"""


def test_a_model_goes_to_the_hub_with_its_card_and_comes_back(tmp_path):
    with fake_hub.run_hub() as there:
        known = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            env=known
            | {
                "HF_ENDPOINT": there.address,
                "HF_HOME": str(tmp_path / "cache"),
                "HF_TOKEN": "hf_of_a_stand_in",
                "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "no_proxy": "*",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        files = there.repositories["someone/tiny"]
    assert set(files) == {"README.md", "config.json", "model.safetensors", "tokenizer_config.json"}
    assert files["README.md"].decode() == "---\nlicense: mit\n---\n# Mine\n"
    assert there.commits[:2] == ["Upload tokenizer", "Upload ElmoForTokenClassification"]
    assert there.commits[-1] == "Once more"
    assert done.stdout == "absent: OSError\n"
