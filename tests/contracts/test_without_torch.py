"""Reading without torch: the same vectors, and one sentence where torch is needed."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import elmore
from elmore import extras
from elmore.errors import MissingPackageError
from elmore.lm import scoring
from elmore.model import native
from elmore.weights.digest import model_digest

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no native library here")

SENTENCES = [
    ["The", "bank", "of", "the", "river", "was", "muddy", "."],
    ["She", "deposited", "money", "at", "the", "bank", "."],
    ["naïve", "日本", "x" * 60],
]
HIDE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "h5py"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
READ = """
import json, pickle
import numpy as np
import elmore
from elmore.weights.digest import model_digest
from elmore.integrations.sklearn import ElmoVectorizer
from elmore.lm import scoring, substitutes, surprisal_table
import elmore.probe.neighbors.index
from elmore.probe.change import figures, study
from elmore.serve import app, engine
from fastapi.testclient import TestClient

sentences, folder = json.loads(sys.argv[1]), sys.argv[2]
elmo = elmore.load()
found = {}
for precision in ("exact", "fast"):
    one = elmore.load(precision=precision)
    for number, text in enumerate(one.embed(sentences, layers="all")):
        found[f"{precision} {number}"] = text.vectors
again = pickle.loads(pickle.dumps(elmo))
found["stream"] = next(again.stream(sentences[:1], layers="all")).vectors
state, steps = None, []
for word in sentences[0]:
    text, state = elmo.step([word], state, layers="all")
    steps.append(text.vectors)
found["steps"] = np.concatenate(steps, axis=1)
found["encoded"] = elmo.encode(sentences)
found["similarity"] = elmo.similarity(sentences[:1], sentences)
found["warm"] = elmore.load(initial_state="warm").embed(sentences[:1])[0].vectors
stateful = elmore.load(stateful=True)
found["stateful"] = [stateful.embed(sentences[:1])[0].vectors for _ in range(2)][1]
found["top"] = elmore.load(max_layer=1).embed(sentences[:1], layers="top")[0].vectors
found["scores"] = np.stack(scoring.score_batch(elmo.bundle, sentences[:1])[0][1:3])
(best, *_) = substitutes.predict_substitutes(elmo.bundle, sentences[0], [1], count=3)
found["best"] = np.array([value for _, value in best.both])
found["sklearn"] = ElmoVectorizer().fit_transform([" ".join(sentences[0])])
with TestClient(app.create(engine.Engine(elmo))) as client:
    body = {"texts": [" ".join(sentences[0])], "layers": "average"}
    found["served"] = np.array(client.post("/embed", json=body).json()["sentences"][0]["vectors"])
np.savez(folder + "/found.npz", **found)
print(model_digest(elmo.bundle))
assert "torch" not in sys.modules
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def read(tmp_path_factory) -> tuple[dict[str, np.ndarray], str]:
    folder = tmp_path_factory.mktemp("read")
    done = run(READ, json.dumps(SENTENCES), str(folder))
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz") as found:
        return dict(found), done.stdout.strip()


@pytest.fixture(scope="module")
def elmo() -> elmore.Embedder:
    return elmore.load(device="cpu")


def definition(elmo: elmore.Embedder, sentence: list[str]) -> np.ndarray:
    """The layers by torch alone: where there are gradients, no native code runs."""
    model = elmo.bundle.model.requires_grad_(True)
    model.use_backend("reference")
    stack, _ = elmo.bundle.run([sentence])
    return stack.without_boundaries().states[:, 0].detach().numpy()


def test_exact_layers_are_those_of_the_definition_and_fast_ones_near(read):
    elmo = elmore.load(device="cpu")
    for number, sentence in enumerate(SENTENCES):
        expected = definition(elmo, sentence)
        found, _ = read
        np.testing.assert_allclose(found[f"exact {number}"], expected, rtol=0, atol=1e-5)
        fast = found[f"fast {number}"]
        cosine = (fast * expected).sum(axis=-1)
        cosine /= np.linalg.norm(fast, axis=-1) * np.linalg.norm(expected, axis=-1)
        assert cosine.min() > 0.99
        assert cosine.mean() > 0.9995


def test_every_bit_is_that_of_an_environment_with_torch(read, elmo):
    found, digest = read
    assert digest == model_digest(elmo.bundle)
    texts = elmo.embed(SENTENCES, layers="all")
    for number, text in enumerate(texts):
        assert np.array_equal(found[f"exact {number}"], text.vectors)
    assert np.array_equal(found["stream"], texts[0].vectors)
    assert np.array_equal(found["steps"], texts[0].vectors[..., : elmo.width // 2])
    assert np.array_equal(found["encoded"], elmo.encode(SENTENCES))
    assert np.array_equal(found["similarity"], elmo.similarity(SENTENCES[:1], SENTENCES))
    lower = elmore.load(device="cpu", max_layer=1)
    assert np.array_equal(found["top"], lower.embed(SENTENCES[:1], layers="top")[0].vectors)


def test_states_scores_and_services_agree_with_an_environment_with_torch(read, elmo):
    found, _ = read
    stateful = elmore.load(device="cpu", stateful=True)
    expected = [stateful.embed(SENTENCES[:1])[0].vectors for _ in range(2)][1]
    np.testing.assert_allclose(found["stateful"], expected, rtol=0, atol=1e-5)
    warm = elmore.load(device="cpu", initial_state="warm").embed(SENTENCES[:1])[0].vectors
    np.testing.assert_allclose(found["warm"], warm, rtol=0, atol=1e-5)
    (scores,) = scoring.score_batch(elmo.bundle, SENTENCES[:1])
    np.testing.assert_allclose(found["scores"], [scores.forward, scores.backward], atol=1e-4)
    assert (np.diff(found["best"]) <= 0).all()
    average = elmo.embed([" ".join(SENTENCES[0])])[0].vectors
    np.testing.assert_allclose(found["served"], average, rtol=0, atol=1e-5)
    pooled = elmo.encode([" ".join(SENTENCES[0])], pool="mean")
    np.testing.assert_allclose(found["sklearn"], pooled, rtol=0, atol=1e-5)


NEEDED = "needs torch, which is not installed: pip install 'elmore[torch]'"
REFUSED = {
    "elmore.Elmo": "elmore.Elmo",
    "elmore.BiLM": "elmore.BiLM",
    "elmore.load(device='cuda')": "device 'cuda'",
    "elmore.load(sys.argv[1])": "a model that elmore did not write",
    "elmore.load().run([['a']], training=True)": "training",
    "folder.save(elmore.load().bundle, None)": "writing a model folder",
    "run('evaluate english x')": "this command",
    "run('finetune english x -o y')": "this command",
    "run('convert english y')": "this command",
}
REFUSE = """
import contextlib, io, json
import elmore
from elmore.cli import main
from elmore.weights import folder

def run(command):
    arguments, sys.argv = sys.argv, ["elmore", *command.split()]
    with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main()
    sys.argv = arguments
    raise ValueError(text.getvalue())

sentences = {}
for code in json.loads(sys.argv[2]):
    try:
        eval(code)
    except ValueError as error:
        sentences[code] = str(error)
print(json.dumps(sentences))
"""


def test_what_needs_torch_says_so_in_one_sentence(tmp_path):
    torch.save({}, tmp_path / "weights.th")
    done = run(REFUSE, str(tmp_path / "weights.th"), json.dumps(list(REFUSED)))
    assert done.returncode == 0, done.stderr
    sentences = json.loads(done.stdout)
    assert sentences.keys() == REFUSED.keys()
    for code, sentence in sentences.items():
        assert sentence.strip().endswith(f"{REFUSED[code]} {NEEDED}"), code


def test_without_torch_and_library_a_model_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    done = run("import elmore\nelmore.load()")
    *_, sentence = done.stderr.strip().splitlines()
    assert "ELMORE_NATIVE=0 forbids it; install torch: pip install 'elmore[torch]'" in sentence


def test_a_folder_of_that_name_is_not_torch(tmp_path, monkeypatch):
    (tmp_path / "torch" / "lib").mkdir(parents=True)  # as pip leaves it behind
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch")
    assert not extras.has_torch()


def test_weights_that_need_h5py_alone_say_so(tmp_path, monkeypatch):
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.delitem(sys.modules, "elmore.weights.convert.bilm_tf", raising=False)
    expected = r"did not write needs h5py, which is not installed: pip install 'elmore\[torch\]'"
    with pytest.raises(MissingPackageError, match=expected):
        elmore.load(tmp_path / "options.json", tmp_path / "weights.hdf5")
