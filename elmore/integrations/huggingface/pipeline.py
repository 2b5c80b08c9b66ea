"""`pipeline("token-classification", ..., pipeline_class=ElmoTokenClassificationPipeline)`.

The pipeline of transformers expects one id per token and looks up its text. Here a token is a word,
and its span in the text is known.
"""

from collections.abc import Sequence
from typing import Any

from transformers import TokenClassificationPipeline


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """Token classification of strings or words; grouping works as in transformers."""

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: object,
        scores: Any,  # an array (T, K)
        offset_mapping: Any,  # a tensor (T, 2)
        special_tokens_mask: Any,  # an array (T)
        aggregation_strategy: object,
        word_ids: Sequence[int | None] | None = None,
        word_to_chars_map: Sequence[tuple[int, int]] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the span and the scores of each word."""
        entities = []
        for index, (start, end) in enumerate(offset_mapping.tolist()):
            if special_tokens_mask[index]:
                continue
            number = word_ids[index] if word_ids else None
            if number is not None and word_to_chars_map:
                start, end = word_to_chars_map[number]
            entities.append(
                {
                    "word": sentence[start:end],
                    "scores": scores[index],
                    "start": start,
                    "end": end,
                    "index": index,
                    "is_subword": False,
                }
            )
        return entities
