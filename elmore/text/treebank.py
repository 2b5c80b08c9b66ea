"""Treebank spellings of quotes and brackets: `` '' -LRB- -RRB-, as in the Penn Treebank."""

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_QUOTES = {"``": '"', "''": '"', "`": "'"}
_PLAIN = BRACKETS | _QUOTES


def plain_punctuation(word: str) -> str:
    """Return a quote or bracket as plain text has it; any other word is returned unchanged."""
    return _PLAIN.get(word, word)
