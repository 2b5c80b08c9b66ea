"""Base forms of regular English words, by the suffixes that WordNet's `morphy` detaches.

Without a dictionary a word has several possible base forms, such as *hopp*, *hoppe* and *hop* of
*hopped*. So this compares words, but cannot tell which form is right. Irregular forms (*went*) are
only their own base forms.
"""

_SUFFIXES = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"),
    ("ves", "f"), ("men", "man"), ("ies", "y"), ("es", "e"), ("es", ""), ("ied", "y"), ("ed", "e"),
    ("ed", ""), ("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e"),
    ("ier", "y"), ("iest", "y"),
)  # fmt: skip
_DOUBLING = ("ed", "ing", "er", "est")


def base_forms(word: str) -> set[str]:
    """Return a word in lower case, and the words that it may be a regular form of."""
    word = word.lower()
    forms = {word}
    for suffix, ending in _SUFFIXES:
        stem = word.removesuffix(suffix)
        if len(stem) < 2 or stem == word:
            continue
        forms.add(stem + ending)
        if suffix in _DOUBLING and len(stem) > 3 and stem[-1] == stem[-2]:
            forms.add(stem[:-1])
    return forms
