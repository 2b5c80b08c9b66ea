"""The identity of a model: a hash of what its vectors depend on."""

import hashlib
import json

from elmore import config
from elmore.weights.bundle import Bundle


def model_digest(bundle: Bundle) -> str:
    """Return a hash of a model: its config, its alphabet and all weights."""
    digest = hashlib.sha256(json.dumps(config.as_dict(bundle.config)).encode())
    digest.update(repr(bundle.alphabet).encode("utf-8", "backslashreplace"))
    for name, weight in bundle.named_weights():
        digest.update(name.encode())
        digest.update(weight.data)
    return digest.hexdigest()
