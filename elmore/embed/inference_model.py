"""The model of an embedder, ready to run: what is computed from its weights, on first use."""

import threading
from dataclasses import replace

from elmore.embed import networks
from elmore.embed.runtime import Runtime
from elmore.model.config import Precision
from elmore.model.state import BiLMState
from elmore.weights.bundle import Bundle
from elmore.weights.digest import model_digest


class InferenceModel:
    """A bundle in a precision, its runtime and its hash; several threads may use it.

    They are computed again after weights or backends changed.
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
        self._source, self._precision, self._start = bundle, precision, start
        self._token_budget, self._cache_megabytes = token_budget, cache_megabytes
        self._lock = threading.RLock()
        self._version: object = None
        self._bundle: Bundle | None = None
        self._runtime: Runtime | None = None
        self._digest: str | None = None

    def _drop_stale(self) -> None:
        """Drop what was computed from weights, or for backends, that have changed since."""
        version = self._source.model.version
        if version != self._version:
            self._version = version
            self._bundle = self._runtime = self._digest = None

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

    @property
    def digest(self) -> str:
        """The hash of the model, by which a state of it is recognised."""
        with self._lock:
            self._drop_stale()
            if self._digest is None:
                self._digest = model_digest(self._source)
            return self._digest
