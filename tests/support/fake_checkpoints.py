"""Write and read tiny checkpoints in the layouts of other packages, without elmore.

bilm-tf (options.json and one HDF5 file), ELMoForManyLangs (a folder with two pickles) and the
state_dict of an AllenNLP `Elmo`. Weights are random at Glorot's scale; no bias is zero, so that
a forgotten one shows.

Used by every test that loads a foreign checkpoint: cli, contracts, embed, fuzz, integrations,
weights.
"""

import json
from pathlib import Path

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

GATES = {"i": 0, "j": 1, "f": 2, "o": 3}
"""Blocks of a bilm-tf gate matrix."""

CHAR_CNN_OPTIONS = {
    "activation": "relu",
    "embedding": {"dim": 4},
    "filters": [[1, 4], [2, 8], [3, 8]],
    "n_highway": 1,
    "n_characters": 262,
    "max_characters_per_token": 50,
}
LSTM_OPTIONS = {
    "dim": 10,
    "projection_dim": 6,
    "n_layers": 2,
    "cell_clip": 3,
    "proj_clip": 3,
    "use_skip_connections": True,
}


def bilm_options(**changes) -> dict:
    """options.json of a tiny model; a change is named by its key, `char_dim` or `char_cnn=None`.

    `char_cnn=None` leaves the character part out: a vocabulary model.
    """
    char_cnn = json.loads(json.dumps(CHAR_CNN_OPTIONS))
    lstm = dict(LSTM_OPTIONS)
    by_vocabulary = "char_cnn" in changes and changes.pop("char_cnn") is None
    for key, value in changes.items():
        if key == "char_dim":
            char_cnn["embedding"]["dim"] = value
        elif key in char_cnn:
            char_cnn[key] = value
        elif key in lstm:
            lstm[key] = value
        else:
            raise TypeError(f"bilm_options has no key {key!r}")
    return {"lstm": lstm} if by_vocabulary else {"lstm": lstm, "char_cnn": char_cnn}


class _Maker:
    """Random float32 weights; only matrices are multiplied by `scale`."""

    def __init__(self, rng: np.random.Generator, scale: float = 1.0) -> None:
        self.rng, self.scale = rng, scale

    def matrix(self, *shape: int, fan_in: int, fan_out: int) -> NDArray:
        limit = self.scale * np.sqrt(6 / (fan_in + fan_out))
        return self.rng.uniform(-limit, limit, shape).astype(np.float32)

    def bias(self, size: int) -> NDArray:
        return self.rng.normal(0, 0.1, size).astype(np.float32)

    def table(self, rows: int, dim: int) -> NDArray:
        return self.rng.uniform(-1, 1, (rows, dim)).astype(np.float32)


def _char_cnn_weights(char_cnn: dict, projection_dim: int, make: _Maker) -> dict[str, NDArray]:
    char_dim = char_cnn["embedding"]["dim"]
    num_filters = sum(count for _, count in char_cnn["filters"])
    weights = {"char_embed": make.table(261, char_dim)}
    for i, (width, count) in enumerate(char_cnn["filters"]):
        weights[f"CNN/W_cnn_{i}"] = make.matrix(
            1, width, char_dim, count, fan_in=width * char_dim, fan_out=width * count
        )
        weights[f"CNN/b_cnn_{i}"] = make.bias(count)
    for k in range(char_cnn["n_highway"]):
        for part in ("carry", "transform"):
            weights[f"CNN_high_{k}/W_{part}"] = make.matrix(
                num_filters, num_filters, fan_in=num_filters, fan_out=num_filters
            )
            weights[f"CNN_high_{k}/b_{part}"] = make.bias(num_filters)
    if num_filters != projection_dim:
        weights["CNN_proj/W_proj"] = make.matrix(
            num_filters, projection_dim, fan_in=num_filters, fan_out=projection_dim
        )
        weights["CNN_proj/b_proj"] = make.bias(projection_dim)
    return weights


def bilm_weights(
    options: dict, rng: np.random.Generator, scale: float = 1.0, num_words: int | None = None
) -> dict[str, NDArray]:
    """{HDF5 dataset name: float32 array}; `num_words` rows of `embedding` where no char_cnn is."""
    make = _Maker(rng, scale)
    lstm = options["lstm"]
    dim, projection_dim = lstm["dim"], lstm["projection_dim"]
    if "char_cnn" in options:
        assert num_words is None, "num_words is for bilm_options(char_cnn=None)"
        weights = _char_cnn_weights(options["char_cnn"], projection_dim, make)
    else:
        assert num_words is not None, "a vocabulary model needs num_words"
        weights = {"embedding": make.table(num_words, projection_dim)}
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            weights[f"{name}/W_0"] = make.matrix(
                2 * projection_dim, 4 * dim, fan_in=2 * projection_dim, fan_out=4 * dim
            )
            weights[f"{name}/B"] = make.bias(4 * dim)
            if dim != projection_dim:
                weights[f"{name}/W_P_0"] = make.matrix(
                    dim, projection_dim, fan_in=dim, fan_out=projection_dim
                )
    return weights


def write_bilm(folder: Path, options: dict, weights: dict[str, NDArray]) -> tuple[Path, Path]:
    """options.json and weights.hdf5 in a folder, which is made if it is absent."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    options_path, weights_path = folder / "options.json", folder / "weights.hdf5"
    options_path.write_text(json.dumps(options), encoding="utf-8")
    with h5py.File(weights_path, "w") as file:
        for name, value in weights.items():
            file.create_dataset(name, data=value)
    return options_path, weights_path


def read_bilm(options_path: Path, weights_path: Path) -> tuple[dict, dict[str, NDArray]]:
    """What `write_bilm` was given."""
    weights = {}

    def collect(name: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            weights[name] = entry[()]

    with h5py.File(weights_path, "r") as file:
        file.visititems(collect)
    return json.loads(Path(options_path).read_text(encoding="utf-8")), weights


MANY_LANGS_WORDS = ("the", "cat", "sat", "on", "a", "naïve", "mat", ".", "日本", "x" * 60)
MANY_LANGS_CHARACTERS = "thecasonïvm.日本x,"


def _many_langs_embedder(
    embedder: dict, projection_dim: int, num_characters: int, num_words: int, make: _Maker
) -> dict[str, NDArray]:
    weights, joined_dim = {}, 0
    if embedder["word_dim"] > 0:
        weights["word_emb_layer.embedding.weight"] = make.table(num_words, embedder["word_dim"])
        joined_dim += embedder["word_dim"]
    if embedder["char_dim"] > 0:
        char_dim = embedder["char_dim"]
        num_filters = sum(count for _, count in embedder["filters"])
        weights["char_emb_layer.embedding.weight"] = make.table(num_characters, char_dim)
        for i, (width, count) in enumerate(embedder["filters"]):
            weights[f"convolutions.{i}.weight"] = make.matrix(
                count, char_dim, width, fan_in=width * char_dim, fan_out=width * count
            )
            weights[f"convolutions.{i}.bias"] = make.bias(count)
        for k in range(embedder["n_highway"]):
            weights[f"highways._layers.{k}.weight"] = make.matrix(
                2 * num_filters, num_filters, fan_in=num_filters, fan_out=num_filters
            )
            weights[f"highways._layers.{k}.bias"] = make.bias(2 * num_filters)
        joined_dim += num_filters
    weights["projection.weight"] = make.matrix(
        projection_dim, joined_dim, fan_in=joined_dim, fan_out=projection_dim
    )
    weights["projection.bias"] = make.bias(projection_dim)
    return weights


def _many_langs_encoder(encoder: dict, make: _Maker) -> dict[str, NDArray]:
    dim, projection_dim = encoder["dim"], encoder["projection_dim"]
    weights = {}
    for layer in range(encoder["n_layers"]):
        for direction in ("forward", "backward"):
            name = f"{direction}_layer_{layer}"
            for part in ("input_linearity", "state_linearity"):
                weights[f"{name}.{part}.weight"] = make.matrix(
                    4 * dim, projection_dim, fan_in=2 * projection_dim, fan_out=4 * dim
                )
            bias = make.bias(4 * dim)
            bias[dim : 2 * dim] += 1  # i, f, g, o; this package stores the forget bias
            weights[f"{name}.state_linearity.bias"] = bias
            weights[f"{name}.state_projection.weight"] = make.matrix(
                projection_dim, dim, fan_in=dim, fan_out=projection_dim
            )
    return weights


def _write_lexicon(path: Path, lexicon: dict[str, int]) -> None:
    lines = "".join(f"{token}\t{number}\n" for token, number in lexicon.items())
    path.write_text(lines, encoding="utf-8")


def read_lexicon(path: Path) -> dict[str, int]:
    """A .dic file as that package reads it: a line without a token means U+3000."""
    lexicon = {}
    for line in Path(path).read_text(encoding="utf-8").split("\n"):
        fields = line.strip().split("\t")
        if len(fields) == 1 and fields[0]:
            fields = ["\u3000", *fields]
        if len(fields) == 2:
            lexicon[fields[0]] = int(fields[1])
    return lexicon


def many_langs(
    folder: Path,
    rng: np.random.Generator,
    *,
    word_dim: int = 5,
    char_dim: int = 4,
    words: list[str] | tuple[str, ...] = MANY_LANGS_WORDS,
    characters: str = MANY_LANGS_CHARACTERS,
    scale: float = 1.0,
) -> dict:
    """Write a tiny ELMoForManyLangs folder; returns the arguments of `NumpyManyLangs`.

    A kind of vector whose width is 0 has no lexicon and no weights.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "encoder": {
            "name": "elmo",
            "projection_dim": 6,
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": 10,
            "n_layers": 2,
        },
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 4], [2, 8], [3, 8]],
            "n_highway": 2,
            "word_dim": word_dim,
            "char_dim": char_dim,
            "max_characters_per_token": 50,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 10},
        "dropout": 0.1,
    }
    word_lexicon = char_lexicon = None
    if word_dim > 0:
        entries = ["<oov>", "<bos>", "<eos>", "<pad>", *words]
        word_lexicon = {entry: number for number, entry in enumerate(entries)}
        _write_lexicon(folder / "word.dic", word_lexicon)
    if char_dim > 0:
        entries = [*characters, "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
        entries = list(dict.fromkeys(entries))
        char_lexicon = {entry: number for number, entry in enumerate(entries)}
        _write_lexicon(folder / "char.dic", char_lexicon)
    make = _Maker(rng, scale)
    token_embedder = _many_langs_embedder(
        config["token_embedder"],
        config["encoder"]["projection_dim"],
        len(char_lexicon or ()),
        len(word_lexicon or ()),
        make,
    )
    encoder = _many_langs_encoder(config["encoder"], make)
    config_name = f"cnn_{char_dim}_{word_dim}_6_10_sample.json"
    (folder / config_name).write_text(json.dumps(config), encoding="utf-8")
    arguments = {"config_path": f"/somewhere/else/{config_name}", "seed": 1, "max_sent_len": 20}
    (folder / "config.json").write_text(json.dumps(arguments), encoding="utf-8")
    for name, weights in (("token_embedder", token_embedder), ("encoder", encoder)):
        tensors = {key: torch.from_numpy(value) for key, value in weights.items()}
        torch.save(tensors, folder / f"{name}.pkl")
    return {
        "config": config,
        "char_lexicon": char_lexicon,
        "word_lexicon": word_lexicon,
        "token_embedder": token_embedder,
        "encoder": encoder,
    }


def read_many_langs(folder: Path) -> dict:
    """What `many_langs` returned for this folder, or the same of a published model."""
    folder = Path(folder)
    arguments = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config_path = folder / Path(arguments["config_path"]).name
    pieces = {"config": json.loads(config_path.read_text(encoding="utf-8"))}
    for kind in ("char", "word"):
        path = folder / f"{kind}.dic"
        pieces[f"{kind}_lexicon"] = read_lexicon(path) if path.exists() else None
    for name in ("token_embedder", "encoder"):
        tensors = torch.load(folder / f"{name}.pkl", map_location="cpu", weights_only=True)
        pieces[name] = {key: value.numpy() for key, value in tensors.items()}
    return pieces


def _in_torch_order(by_gate: NDArray) -> NDArray:
    """Blocks i, j, f, o of the last axis as i, f, j, o."""
    blocks = np.split(by_gate, 4, axis=-1)
    return np.concatenate([blocks[GATES[gate]] for gate in "ifjo"], axis=-1)


def allennlp_state_dict(
    options: dict, weights: dict[str, NDArray], prefix: str = ""
) -> dict[str, torch.Tensor]:
    """What `Elmo(options, weights, num_output_representations=1).state_dict()` would hold.

    AllenNLP itself refuses models without skip connections, projection or characters; for those
    this function fails, too.
    """
    lstm, char_cnn = options["lstm"], options["char_cnn"]
    assert lstm["use_skip_connections"], "AllenNLP has no models without skip connections"
    projection_dim, dim = lstm["projection_dim"], lstm["dim"]
    state = {}

    embedder = "_elmo_lstm._token_embedder"
    table = weights["char_embed"]
    state[f"{embedder}._char_embedding_weights"] = np.concatenate([0 * table[:1], table])
    for i in range(len(char_cnn["filters"])):
        kernel = weights[f"CNN/W_cnn_{i}"][0]  # (width, in, out)
        state[f"{embedder}.char_conv_{i}.weight"] = kernel.transpose(2, 1, 0)
        state[f"{embedder}.char_conv_{i}.bias"] = weights[f"CNN/b_cnn_{i}"]
    for k in range(char_cnn["n_highway"]):
        layer, high = f"{embedder}._highways._layers.{k}", f"CNN_high_{k}"
        state[f"{layer}.weight"] = np.concatenate(
            [weights[f"{high}/W_transform"].T, -weights[f"{high}/W_carry"].T]
        )
        state[f"{layer}.bias"] = np.concatenate(
            [weights[f"{high}/b_transform"], -weights[f"{high}/b_carry"]]
        )
    state[f"{embedder}._projection.weight"] = weights["CNN_proj/W_proj"].T
    state[f"{embedder}._projection.bias"] = weights["CNN_proj/b_proj"]

    for layer in range(lstm["n_layers"]):
        for direction, name in enumerate(("forward", "backward")):
            source = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            target = f"_elmo_lstm._elmo_lstm.{name}_layer_{layer}"
            both = _in_torch_order(weights[f"{source}/W_0"])
            bias = _in_torch_order(weights[f"{source}/B"])
            bias[dim : 2 * dim] += 1
            state[f"{target}.input_linearity.weight"] = both[:projection_dim].T
            state[f"{target}.state_linearity.weight"] = both[projection_dim:].T
            state[f"{target}.state_linearity.bias"] = bias
            state[f"{target}.state_projection.weight"] = weights[f"{source}/W_P_0"].T

    state["scalar_mix_0.gamma"] = np.ones(1, np.float32)
    for k in range(lstm["n_layers"] + 1):
        state[f"scalar_mix_0.scalar_parameters.{k}"] = np.zeros(1, np.float32)
    return {
        prefix + name: torch.from_numpy(np.array(value, order="C")) for name, value in state.items()
    }
