"""The names and shapes of the weights of a network, as `state_dict` and files have them."""

from itertools import pairwise

from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig, LSTMConfig, SoftmaxConfig

Shapes = dict[str, tuple[int, ...]]
_NARROWING = 4  # unless told, each tail is this much narrower than the one before


def bilm_shapes(config: BiLMConfig) -> Shapes:
    """Return the shapes of the weights of a biLM."""
    shapes: Shapes = {}
    if config.words is not None:
        shapes["tokens.words.weight"] = (config.words.num_words, config.words.dim)
    if config.characters is not None:
        cnn, prefix = config.characters, "tokens.characters"
        shapes[f"{prefix}.embedding.weight"] = (cnn.num_ids, cnn.embedding_dim)
        for number, (width, count) in enumerate(cnn.filters):
            shapes[f"{prefix}.convolutions.{number}.weight"] = (count, cnn.embedding_dim, width)
            shapes[f"{prefix}.convolutions.{number}.bias"] = (count,)
        for number in range(cnn.num_highways):
            for name in ("transform", "gate"):
                shapes |= _linear(
                    f"{prefix}.highways.{number}.{name}", cnn.num_filters, cnn.num_filters
                )
    if config.projection:
        shapes |= _linear("tokens.projection", config.lstm.output_dim, config.token_dim)
    for direction in ("forward", "backward"):
        for number in range(config.lstm.num_layers):
            shapes |= _layer(f"{direction}_layers.{number}", config.lstm)
    return shapes


def lstm_matrices(config: BiLMConfig) -> set[str]:
    """Return the names of the matrices that may be in int8."""
    return {
        name
        for name, shape in bilm_shapes(config).items()
        if len(shape) == 2 and not name.startswith("tokens.")
    }


def state_shapes(lstm: LSTMConfig) -> Shapes:
    """Return the shapes of a recurrent state of one row."""
    return {
        "output": (2, lstm.num_layers, 1, lstm.output_dim),
        "cell": (2, lstm.num_layers, 1, lstm.cell_dim),
    }


def softmax_shapes(config: SoftmaxConfig, num_words: int, dim: int) -> Shapes:
    """Return the shapes of the weights of a softmax."""
    if config.kind != "adaptive":
        return {"weight": (num_words, dim), "bias": (num_words,)}
    cutoffs = tail_cutoffs(config, num_words)
    entries = cutoffs[0] + len(cutoffs)
    shapes: Shapes = {"head.weight": (entries, dim), "head.bias": (entries,)}
    for number, (begin, end) in enumerate(pairwise((*cutoffs, num_words))):
        width = tail_width(config, dim, number)
        shapes[f"tails.{number}.projection.weight"] = (width, dim)
        shapes[f"tails.{number}.softmax.weight"] = (end - begin, width)
        shapes[f"tails.{number}.softmax.bias"] = (end - begin,)
    return shapes


def check_softmax(config: SoftmaxConfig, num_words: int, dim: int) -> None:
    """Refuse a softmax that has no room for its samples or tails, or tails of a wrong width."""
    if config.kind == "sampled" and config.unique and config.num_samples > num_words:
        raise ConfigError(
            f"softmax.num_samples ({config.num_samples}) must not exceed the {num_words} words "
            "of the vocabulary when softmax.unique is true"
        )
    if config.kind == "adaptive" and config.cutoffs and config.cutoffs[-1] >= num_words:
        raise ConfigError(
            f"softmax.cutoffs must end below the {num_words} words of the vocabulary, found "
            f"{list(config.cutoffs)}"
        )
    if config.kind == "adaptive":
        _check_tails(config, len(tail_cutoffs(config, num_words)), dim)


def _check_tails(config: SoftmaxConfig, num_tails: int, dim: int) -> None:
    if config.tail_widths and len(config.tail_widths) != num_tails:
        raise ConfigError(
            f"softmax.tail_widths must have a width for each of the {num_tails} tails, found "
            f"{list(config.tail_widths)}"
        )
    for width in (tail_width(config, dim, number) for number in range(num_tails)):
        if not 1 <= width <= dim:
            raise ConfigError(
                f"softmax.tail_widths must be from 1 to the width of a direction, {dim}, found "
                f"{width}"
            )
        if width * config.tail_bits % 8:
            raise ConfigError(
                f"a softmax tail of width {width} does not fill whole bytes with "
                f"{config.tail_bits} bits a number; change softmax.tail_widths or softmax.tail_bits"
            )


def tail_cutoffs(config: SoftmaxConfig, num_words: int) -> tuple[int, ...]:
    """Return the first word of each tail of an adaptive softmax."""
    return config.cutoffs or tuple(sorted({num_words // 20, num_words // 4} - {0}))


def tail_width(config: SoftmaxConfig, dim: int, number: int) -> int:
    """Return the width of a tail, counted from 0."""
    if config.tail_widths:
        return config.tail_widths[number]
    return max(1, dim // _NARROWING ** (number + 1))


def packed_matrices(config: SoftmaxConfig, num_words: int) -> dict[str, int]:
    """Return the matrices of a softmax that are stored in fewer than 8 bits, with their bits."""
    if config.kind != "adaptive" or config.tail_bits == 8:
        return {}
    tails = range(len(tail_cutoffs(config, num_words)))
    return {f"tails.{number}.softmax.weight": config.tail_bits for number in tails}


def _linear(name: str, height: int, width: int) -> Shapes:
    return {f"{name}.weight": (height, width), f"{name}.bias": (height,)}


def _layer(name: str, lstm: LSTMConfig) -> Shapes:
    gates = 4 * lstm.cell_dim
    shapes: Shapes = {
        f"{name}.input": (gates, lstm.output_dim),
        f"{name}.recurrent": (gates, lstm.output_dim),
        f"{name}.bias": (gates,),
    }
    return shapes | (
        {f"{name}.projection": (lstm.output_dim, lstm.cell_dim)} if lstm.projection else {}
    )
