"""The model of an embedder, ready to run: what is computed from its weights, on first use."""

import threading
from dataclasses import replace

from elmore.embed import networks
from elmore.embed.runtime import Runtime
from elmore.errors import ConfigError
from elmore.model.config import Precision
from elmore.model.state import BiLMState
from elmore.weights.bundle import Bundle
from elmore.weights.digest import model_digest


class InferenceModel:
    """A bundle in a precision, with its runtime; several threads may use it.

    Everything is computed again after weights or backends changed.

    Raises:
        ConfigError: An argument is impossible.
    """

    def __init__(
        self,
        bundle: Bundle,
        precision: Precision,
        start: BiLMState | None,
        *,
        token_budget: int | None,
        cache_megabytes: float | None,
    ) -> None:
        if precision not in ("exact", "fast"):
            raise ConfigError(f"precision must be 'exact' or 'fast', found {precision!r}")
        if (token_budget is not None and token_budget < 1) or (cache_megabytes or 0) < 0:
            found = f"{token_budget} and {cache_megabytes}"
            least = "token_budget must be at least 1 and cache_megabytes not negative"
            raise ConfigError(f"{least}, found {found}")
        self._source, self._start = bundle, start
        self._precision: Precision = precision
        self._token_budget, self._cache_megabytes = token_budget, cache_megabytes
        self._lock = threading.RLock()
        self._version: object = None
        self._bundle: Bundle | None = None
        self._runtime: Runtime | None = None
        self._identity: tuple[str, Precision] | None = None

    def _drop_stale(self) -> None:
        """Drop what was computed from weights, or for backends, that have changed since."""
        version = self._source.model.version
        if version != self._version:
            self._version = version
            self._bundle = self._runtime = self._identity = None

    @property
    def bundle(self) -> Bundle:
        """The bundle in the precision that was asked for."""
        if self._precision == "exact":
            return self._source
        with self._lock:
            self._drop_stale()
            if self._bundle is None:
                model = networks.with_precision(self._source.model, self._precision)
                same = model is self._source.model
                self._bundle = self._source if same else replace(self._source, model=model)
            return self._bundle

    @property
    def precision(self) -> Precision:
        """The precision in which it runs: "fast" only where that differs from exact."""
        return "fast" if self.bundle.model.is_fast else "exact"

    @property
    def runtime(self) -> Runtime:
        """What every call shares: built on first use, and after weights or backends changed."""
        with self._lock:
            self._drop_stale()
            if self._runtime is None:
                self._runtime = Runtime(
                    networks.network_of(self.bundle.model),
                    self._source.alphabet,
                    self._start,
                    token_budget=self._token_budget,
                    cache_megabytes=self._cache_megabytes,
                )
            return self._runtime

    def prepare(self) -> tuple[Runtime, str, Precision]:
        """Return the runtime, and the hash and the precision by which its states are recognised."""
        with self._lock:
            runtime = self.runtime  # first: it drops what is stale
            if self._identity is None:
                self._identity = model_digest(self._source), self.precision
            return runtime, *self._identity
