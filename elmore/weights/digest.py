"""The identity of a model: hashes of what its vectors and its softmax depend on."""

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


def softmax_digest(bundle: Bundle) -> str:
    """Return a hash of a softmax of torch: its words and all weights; empty if there is none."""
    if bundle.softmax is None or bundle.vocabulary is None:
        return ""
    words = "\n".join(bundle.vocabulary.words)
    digest = hashlib.sha256(words.encode("utf-8", "backslashreplace"))
    for name, weight in sorted(bundle.softmax.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(weight.float().cpu().contiguous().numpy().data)
    return digest.hexdigest()
