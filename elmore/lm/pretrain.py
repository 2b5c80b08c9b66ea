"""Train a biLM from nothing, or from the weights of another, on a prepared text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from elmore import config
from elmore.corpus.shards import Corpus, open_corpus
from elmore.errors import ConfigError
from elmore.lm.config import PretrainConfig
from elmore.lm.language_model import LanguageModel
from elmore.lm.training import Training
from elmore.model import softmax as softmaxes
from elmore.model.bilm import BiLM
from elmore.model.softmax import Softmax
from elmore.text.characters import Alphabet, ByteAlphabet, WordAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train import precision
from elmore.train.config import TrainConfig
from elmore.train.distributed import DistEnv, init_distributed
from elmore.train.fit import Report, deterministic, fit
from elmore.train.runs import Run
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle


def pretrain(
    recipe: PretrainConfig,
    shards: Path,
    out: Path,
    *,
    init: Sequence[str | Path] = (),
    resume: bool = False,
    device: str = "auto",
) -> Iterator[Report]:
    """Train as the recipe says, and report; the best model lies in `out / "best"`."""
    with init_distributed(device) as (dist_env, place):
        corpus = checked(shards, dist_env)
        start = [str(source) for source in init]
        described = {"recipe": config.as_dict(recipe), **({"from": start} if start else {})}
        training = Training(
            model_of(recipe, corpus.vocabulary, init),
            corpus,
            corpus.vocabulary,
            alphabet_of(recipe, corpus.vocabulary),
            recipe.stream,
            recipe.train.seed,
            dist_env,
            replace(recipe.card, training=described),
        )
        described = {**config.as_dict(recipe), "init": start}
        with begun(out, described, corpus, dist_env, resume=resume) as run:
            yield from trained(training, recipe.train, run, place, dist_env, resume=resume)


def checked(shards: Path, dist_env: DistEnv) -> Corpus:
    """Open a prepared text; one process looks whether it is whole."""
    corpus = open_corpus(shards)
    if dist_env.is_main:
        corpus.verify()
    return corpus


def begun(
    out: Path, recipe: dict[str, Any], corpus: Corpus, dist_env: DistEnv, *, resume: bool
) -> Run:
    """Make the run folder, or come back to it, and lock it until the run is closed."""
    run = Run(out)
    if dist_env.is_main:
        run.create_or_resume({**recipe, "corpus": corpus.index["sha256"]}, resume=resume)
    if dist_env.world_size > 1:
        dist.barrier()
    return run


def trained(
    training: Training,
    settings: TrainConfig,
    run: Run,
    device: torch.device,
    dist_env: DistEnv,
    *,
    resume: bool,
) -> Iterator[Report]:
    """Move everything where it belongs, and train."""
    numbers = precision.resolve(settings, device)
    try:
        with deterministic(settings), precision.autocast(numbers, device, cache=False):
            training.module.to(device, precision.weight_dtype(numbers)).train()
            if device.type == "cuda" and _may_record(training, settings, dist_env):
                training.record()
        yield from fit(training, settings, run, device=device, dist_env=dist_env, resume=resume)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"{training.stream.batch_size} rows of {training.stream.unroll_steps} tokens do not "
            f"fit into GPU memory ({str(error).split('.')[0]}); lower stream.batch_size or "
            "stream.unroll_steps, and raise train.grad_accum_steps instead"
        ) from error


def _may_record(training: Training, settings: TrainConfig, dist_env: DistEnv) -> bool:
    """Frozen weights have no way back to record, and DDP has its own hooks there.

    To be deterministic some gradients are added up in ways that cannot be recorded.
    """
    learned = all(weight.requires_grad for weight in training.module.bilm.parameters())
    one_batch = settings.grad_accum_steps == 1 and dist_env.world_size == 1
    return learned and one_batch and not settings.deterministic


def alphabet_of(recipe: PretrainConfig, vocabulary: Vocabulary) -> Alphabet:
    """Say how the model of a recipe spells words."""
    characters, words = recipe.model.characters, recipe.model.words
    if characters is None:
        if words is not None and words.num_words != len(vocabulary):
            raise ConfigError(
                f"model.words.num_words is {words.num_words}, the vocabulary of the text has "
                f"{len(vocabulary)} words; they must agree"
            )
        return WordAlphabet(vocabulary)
    if words is not None:
        raise ConfigError("a model that reads words and characters cannot be trained from nothing")
    return ByteAlphabet(characters.max_characters)


def model_of(
    recipe: PretrainConfig, vocabulary: Vocabulary, init: Sequence[str | Path]
) -> LanguageModel:
    """Build the model of a recipe, with new weights or those of another model."""
    torch.manual_seed(recipe.train.seed)
    model = LanguageModel(
        BiLM(recipe.model),
        softmaxes.build(recipe.softmax, len(vocabulary), recipe.model.lstm.output_dim),
    )
    if init:
        _start_from(model, vocabulary, pretrained.load(*init))
    return model


def _start_from(model: LanguageModel, vocabulary: Vocabulary, bundle: Bundle) -> None:
    """Take over the weights of another model, and of its softmax the words both know."""
    ours, theirs = config.as_dict(model.bilm.config), config.as_dict(bundle.config)
    differs = [key for key in ours if ours[key] != theirs[key] and key != "dropout"]
    if differs:
        raise ConfigError(
            f"--init: that model has another shape (model.{differs[0]}: {theirs[differs[0]]}, the "
            f"recipe asks for {ours[differs[0]]}); use its own recipe"
        )
    if model.bilm.config.words is not None and bundle.vocabulary != vocabulary:
        raise ConfigError(
            "--init: that model has a table of other words; prepare the text with its list of "
            "words (--vocabulary)"
        )
    model.bilm.load_state_dict(bundle.model.state_dict())
    old, new = bundle.softmax, model.softmax
    if not (isinstance(old, Softmax) and isinstance(new, Softmax) and bundle.vocabulary):
        return
    known = [word for word in vocabulary.words if word in bundle.vocabulary]
    here, there = (torch.from_numpy(words.ids(known)) for words in (vocabulary, bundle.vocabulary))
    with torch.no_grad():
        new.weight[here] = old.weight[there]
        new.bias[here] = old.bias[there]
