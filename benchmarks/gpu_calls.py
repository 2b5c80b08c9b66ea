"""Count on a CPU what bulk embedding with the original size would ask of a GPU.

    python benchmarks/gpu_calls.py [--tokens 5000000] [--text corpus/valid.txt.xz]

Everything runs but the network: windows, packing and tables of gate inputs are made with the limits
of a GPU, and a narrow network counts how it is called. A call of the LSTMs is the replay of a CUDA
graph, once its shape has recurred. No time is measured. The text is a file in $ELMORE_DATA,
tokenized, and repeated if it is too short; the longest sentences decide much.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

import contestants
import torch
from embed_tokens import sentences

from elmore.embed import device, packed
from elmore.embed.device import DeviceLimits, Network
from elmore.embed.runtime import Runtime
from elmore.embed.tokenized import TokenizedText
from elmore.embed.torch_device import TorchDevice
from elmore.model.config import BiLMConfig, LSTMConfig
from elmore.model.state import LSTMState
from elmore.text.characters import ByteAlphabet

CELLS = 1  # width of the network that counts
CALLS = "calls of the LSTMs"
COUNTED = (CALLS, "steps x rows", "products for frequent words", "products for rare words")


class CountingDevice(TorchDevice):
    """A CPU with the limits of a GPU."""

    def __init__(self, limits: DeviceLimits) -> None:
        super().__init__(torch.zeros(1))
        share = CELLS / LSTMConfig().cell_dim  # gate inputs of as many words as with the original
        self._limits = limits._replace(projection_bytes=limits.projection_bytes * share)
        self.counts: Counter[str] = Counter()
        self._runs = False

    @property
    def limits(self) -> DeviceLimits:
        """Those of the GPU."""
        return self._limits

    def run_together(self, functions: Sequence) -> list:
        """Run the LSTMs: products between their calls are those for rare words."""
        self._runs = True
        results = super().run_together(functions)
        self._runs = False
        return results

    def stack(
        self,
        inputs: torch.Tensor,
        mask: torch.Tensor,
        states: list[LSTMState],
        *_: object,
        projected: bool = True,
    ) -> tuple[list[torch.Tensor], list[LSTMState]]:
        """Count a call of the LSTMs of one direction; boundary tokens are not projected before."""
        if projected:
            self.counts.update({CALLS: 1, "steps x rows": mask.numel()})
        outputs = inputs.new_zeros(*mask.shape, CELLS)
        return [outputs] * len(states), states

    def project(self, vectors: torch.Tensor) -> torch.Tensor:
        """Count a matrix product."""
        self.counts[f"products for {'rare' if self._runs else 'frequent'} words"] += 1
        return vectors.new_zeros(*vectors.shape[:2], 4 * CELLS)


def count(texts: Iterable[list[str]], limits: DeviceLimits) -> Counter[str]:
    """Count what a GPU of these limits would launch to embed texts."""
    config = BiLMConfig(lstm=LSTMConfig(cell_dim=CELLS, output_dim=CELLS))
    counting = CountingDevice(limits)

    def encode(letters: torch.Tensor | None, ids: torch.Tensor | None) -> torch.Tensor:
        assert letters is not None
        return torch.zeros(len(letters), CELLS)

    functions = [counting.stack] * 2, [counting.project] * 2
    runtime = Runtime(
        Network(config, counting, encode, *functions, fixed_shapes=True), ByteAlphabet()
    )
    tokenized = (TokenizedText(words, (len(words),), None) for words in texts)
    for text, _ in packed.embed_texts(runtime, tokenized, lambda layers: layers.states[:1]):
        counting.counts["words"] += len(text.words)
    return counting.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=5_000_000)
    parser.add_argument("--text", default="corpus/valid.txt.xz")
    args = parser.parse_args()
    text = list(contestants.real_sentences(args.text))
    print(f"| GPU | {' | '.join(COUNTED)} |\n{'|---' * (len(COUNTED) + 1)}|")
    for name, limits in (("smaller", device.GPU), ("64 GB or more", device.LARGE_GPU)):
        counts = count(sentences(args.tokens, text), limits)
        print(f"| {name} | {' | '.join(f'{counts[each]:,}' for each in COUNTED)} |", flush=True)


if __name__ == "__main__":
    main()
