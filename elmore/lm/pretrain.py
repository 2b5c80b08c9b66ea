"""Train a biLM from scratch, or from the weights of another, on a prepared corpus."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from elmore import config
from elmore.corpus.shards import Corpus, open_corpus
from elmore.errors import ConfigError, ElmoreError
from elmore.lm.config import PretrainConfig
from elmore.lm.distillation import DistilledLanguageModel, load_teacher
from elmore.lm.language_model import LanguageModel
from elmore.lm.parents import (
    ParentModel,
    derive_card,
    describe_parent,
    unknown_parent,
    warn_of_unknown_licence,
)
from elmore.lm.scoring import check_softmax_file
from elmore.lm.trainable import LMTrainable
from elmore.model import softmax as softmaxes
from elmore.model.bilm import BiLM
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.model.softmax_conversion import copy_adaptive_softmax, copy_full_softmax
from elmore.text.characters import Alphabet, ByteAlphabet, WordAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train import precision
from elmore.train.config import TrainConfig
from elmore.train.distributed import DistEnv, init_distributed
from elmore.train.fit import Report, deterministic, fit
from elmore.train.runs import Run
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

_log = logging.getLogger(__name__)


def pretrain(
    recipe: PretrainConfig,
    shards: Path,
    out: Path,
    *,
    init: Sequence[str | Path] = (),
    resume: bool = False,
    device: str = "auto",
) -> Iterator[Report]:
    """Train a biLM and yield reports; the best model is written to `out / "best"`.

    Args:
        recipe: Model and training settings, from `elmore.lm.config.read_pretrain_recipe`.
        shards: A folder written by `elmore prepare`.
        out: The run folder.
        init: A model to take the initial weights from, as for `elmore.load`.
        resume: Continue the run in `out`.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: The recipe does not fit the corpus, the teacher, the device or the run to
            resume.
        DataError: The corpus or the run folder cannot be used.
    """
    if recipe.freeze_bilm and not init:
        raise ConfigError(
            "freeze_bilm trains the softmax of a biLM that is there already; name its model "
            "(--init), or set freeze_bilm=false"
        )
    with init_distributed(device) as (dist_env, own_device):
        corpus = open_verified_corpus(shards, dist_env)
        alphabet = build_alphabet(recipe, corpus.vocabulary)
        model, parent, teacher_facts = _build_and_describe(
            recipe, corpus.vocabulary, alphabet, init, out, resume=resume
        )
        if parent is not None and dist_env.is_main:
            warn_of_unknown_licence(recipe.card)
        recipe_facts = _recipe_facts(recipe, teacher_facts)
        card = derive_card(recipe.card, corpus, recipe_facts, parent=parent, teacher=teacher_facts)
        saved_recipe = {
            **config.as_dict(recipe),
            "init": [str(source) for source in init],
            **(_parent_facts(parent) if parent else {}),
            **_teacher_facts(teacher_facts),
        }
        trainable = LMTrainable(
            model,
            corpus,
            corpus.vocabulary,
            alphabet,
            recipe.stream,
            recipe.train.seed,
            dist_env,
            card,
        )
        with open_run(out, saved_recipe, corpus, dist_env, resume=resume) as run:
            yield from train_lm(trainable, recipe.train, run, own_device, resume=resume)


def _build_and_describe(
    recipe: PretrainConfig,
    vocabulary: Vocabulary,
    alphabet: Alphabet,
    init: Sequence[str | Path],
    out: Path,
    *,
    resume: bool,
) -> tuple[LanguageModel, ParentModel | None, ParentModel | None]:
    """Build the model to train, and describe its parent and its teacher.

    The loaded initial model does not leave this function: its weights are copied, and a reference
    to it would keep its memory until the training ends.
    """
    initial, parent = _load_parent(init, out, resume=resume)
    teacher, teacher_facts = _load_teacher(recipe, alphabet, vocabulary)
    return build_model(recipe, vocabulary, initial, teacher), parent, teacher_facts


def _load_parent(
    init: Sequence[str | Path], out: Path, *, resume: bool
) -> tuple[Bundle | None, ParentModel | None]:
    """Load the initial model and describe it, for the card.

    A resumed run has its weights in a checkpoint, and needs only the description. That is in the
    run folder, since the model may be gone by then.
    """
    if not init:
        return None, None
    run = Run(out)
    if not (resume and run.checkpoint_steps()):
        bundle = pretrained.load(*init)
        return bundle, describe_parent(bundle, init)
    saved = run.read_recipe().get("parent")
    if saved is not None:
        return None, config.build(ParentModel, saved, f"{run.recipe}: parent")
    try:  # run folders before format 8 lack the description
        return None, describe_parent(pretrained.load(*init), init)
    except ElmoreError:  # whatever is wrong with it, its name is enough
        return None, unknown_parent(init)


def _load_teacher(
    recipe: PretrainConfig, alphabet: Alphabet, vocabulary: Vocabulary
) -> tuple[Bundle | None, ParentModel | None]:
    """Load the teacher of a distillation and describe it; None for both without one."""
    source = recipe.distillation.teacher
    if source is None:
        return None, None
    bundle = load_teacher(recipe, alphabet, vocabulary)
    return bundle, describe_parent(bundle, [source])


def _parent_facts(parent: ParentModel) -> dict[str, Any]:
    """Return what a run folder keeps of the initial model."""
    return {
        "init_sha256": parent.sha256,
        "init_softmax_sha256": parent.softmax_sha256,
        "parent": config.as_dict(parent),
    }


def _teacher_facts(teacher: ParentModel | None) -> dict[str, Any]:
    """Return what a run folder keeps of the teacher, to tell whether it is another."""
    if teacher is None:
        return {}
    softmax = teacher.softmax_sha256  # None without soft targets
    return {
        "teacher_sha256": teacher.sha256,
        **({"teacher_softmax_sha256": softmax} if softmax else {}),
    }


def _recipe_facts(recipe: PretrainConfig, teacher: ParentModel | None) -> dict[str, Any]:
    """Return the recipe for the card, where the teacher has a name instead of a path."""
    facts = config.as_dict(recipe)
    if teacher is not None:
        facts["distillation"]["teacher"] = teacher.name
    return facts


def open_verified_corpus(shards: Path, dist_env: DistEnv) -> Corpus:
    """Open a prepared corpus; the main process verifies its checksums."""
    corpus = open_corpus(shards)
    if dist_env.is_main:
        corpus.verify()
    return corpus


def open_run(
    out: Path, recipe: dict[str, Any], corpus: Corpus, dist_env: DistEnv, *, resume: bool
) -> Run:
    """Create or resume a run folder, and lock it until the run is closed."""
    run = Run(out)
    if dist_env.is_main:
        run.create_or_resume({**recipe, "corpus": corpus.index["sha256"]}, resume=resume)
    if dist_env.world_size > 1:
        dist.barrier()
    return run


def train_lm(
    trainable: LMTrainable,
    settings: TrainConfig,
    run: Run,
    device: torch.device,
    *,
    resume: bool,
) -> Iterator[Report]:
    """Move the model to its device, capture a CUDA graph if possible, and train."""
    resolved = precision.resolve(settings, device)
    try:
        with deterministic(settings), precision.autocast(resolved, device, cache=False):
            trainable.module.to(device, precision.weight_dtype(resolved)).train()
            if device.type == "cuda" and _can_capture_graph(trainable, settings, resume=resume):
                trainable.capture_cuda_graph()
        yield from fit(
            trainable, settings, run, device=device, dist_env=trainable.dist_env, resume=resume
        )
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"{trainable.stream.batch_size} rows of {trainable.stream.unroll_steps} tokens do not "
            f"fit into GPU memory ({str(error).split('.')[0]}); lower stream.batch_size or "
            "stream.unroll_steps, and raise train.grad_accum_steps instead"
        ) from error


def _can_capture_graph(trainable: LMTrainable, settings: TrainConfig, *, resume: bool) -> bool:
    """Return whether training may run as a CUDA graph.

    Weights of which some are frozen have no whole backward pass to capture, DDP has hooks there,
    and some deterministic kernels cannot be captured. A graph of frozen weights has copies of
    them, which do not change when a checkpoint is loaded.
    """
    trained = {weight.requires_grad for weight in trainable.module.bilm.parameters()}
    all_or_none = trained == {True} or (trained == {False} and not resume)
    one_batch = settings.grad_accum_steps == 1 and trainable.dist_env.world_size == 1
    return all_or_none and one_batch and not settings.deterministic


def build_alphabet(recipe: PretrainConfig, vocabulary: Vocabulary) -> Alphabet:
    """Return the alphabet of a recipe's model."""
    characters, words = recipe.model.characters, recipe.model.words
    if characters is None:
        if words is not None and words.num_words != len(vocabulary):
            raise ConfigError(
                f"model.words.num_words is {words.num_words}, the vocabulary of the corpus has "
                f"{len(vocabulary)} words; they must be equal"
            )
        return WordAlphabet(vocabulary)
    if words is not None:
        raise ConfigError("a model that reads words and characters cannot be trained from scratch")
    return ByteAlphabet(characters.max_characters)


def build_model(
    recipe: PretrainConfig,
    vocabulary: Vocabulary,
    initial: Bundle | None = None,
    teacher: Bundle | None = None,
) -> LanguageModel:
    """Build the model of a recipe, with random weights or those of an initial model.

    With a teacher it has the same weights, and maps to the layers of the teacher besides.
    """
    torch.manual_seed(recipe.train.seed)
    model = LanguageModel(
        BiLM(recipe.model),
        softmaxes.build(recipe.softmax, len(vocabulary), recipe.model.lstm.output_dim),
    )
    if initial is not None:
        _copy_weights(model, vocabulary, initial)
    if teacher is not None:
        return DistilledLanguageModel(model.bilm, model.softmax, teacher, recipe.distillation)
    if recipe.freeze_bilm:
        model.bilm.requires_grad_(requires_grad=False)
    return model


def _copy_weights(model: LanguageModel, vocabulary: Vocabulary, bundle: Bundle) -> None:
    """Copy the weights of another model, and of its softmax the words that both have.

    An adaptive softmax is copied only if both have the same vocabulary, cutoffs and widths. With
    the same vocabulary it is approximated from a full one, and a full one from an adaptive.
    """
    ours, theirs = config.as_dict(model.bilm.config), config.as_dict(bundle.config)
    differing = [key for key in ours if ours[key] != theirs[key] and key != "dropout"]
    if differing:
        key = differing[0]
        raise ConfigError(
            f"--init: that model has another shape (model.{key}: {theirs[key]}, the recipe has "
            f"{ours[key]}); use its own recipe"
        )
    if model.bilm.config.words is not None and bundle.vocabulary != vocabulary:
        raise ConfigError(
            "--init: that model has embeddings of other words; prepare the text with its "
            "vocabulary (--vocabulary)"
        )
    check_softmax_file(bundle)
    model.bilm.load_state_dict(bundle.model.state_dict())
    obstacle = _copy_softmax(model.softmax, vocabulary, bundle)
    if obstacle and not (dist.is_initialized() and dist.get_rank()):  # one process logs it
        _log.warning("--init: the softmax is not copied but starts at random: %s", obstacle)


def _copy_softmax(
    new: Softmax | AdaptiveSoftmax, vocabulary: Vocabulary, bundle: Bundle
) -> str | None:
    """Copy the softmax of another model; return why it cannot be copied."""
    old: Softmax | AdaptiveSoftmax | None = bundle.softmax
    if old is None or bundle.vocabulary is None:
        return "that model has none"
    if isinstance(old, Softmax) and isinstance(new, Softmax):
        _copy_words(new, vocabulary, old, bundle.vocabulary)
        return None
    # the place of a word in an adaptive one depends on its rank
    if bundle.vocabulary != vocabulary:
        return "an adaptive one can be copied only with the same vocabulary"
    if isinstance(old, Softmax) and isinstance(new, AdaptiveSoftmax):
        copy_full_softmax(new, old)
    elif isinstance(old, AdaptiveSoftmax) and isinstance(new, Softmax):
        copy_adaptive_softmax(new, old)
    elif isinstance(old, AdaptiveSoftmax) and isinstance(new, AdaptiveSoftmax):
        if old.cutoffs != new.cutoffs:
            return f"that model has the cutoffs {old.cutoffs}, the recipe {new.cutoffs}"
        if old.tail_widths != new.tail_widths:
            widths = f"{old.tail_widths}, the recipe {new.tail_widths}"
            return f"that model has tails of the widths {widths}"
        new.load_state_dict(old.state_dict())
    return None


def _copy_words(
    new: Softmax, vocabulary: Vocabulary, old: Softmax, old_vocabulary: Vocabulary
) -> None:
    """Copy the words that both softmaxes have."""
    shared = [word for word in vocabulary.words if word in old_vocabulary]
    new_ids, old_ids = (
        torch.from_numpy(words.ids(shared)) for words in (vocabulary, old_vocabulary)
    )
    with torch.no_grad():
        new.weight[new_ids] = old.weight[old_ids]
        new.bias[new_ids] = old.bias[old_ids]
