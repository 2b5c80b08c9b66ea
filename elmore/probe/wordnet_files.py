"""The files WordNet's lexicographers sort senses into (lexnames(5WN)): what a sense is about."""

_NAMES = """
    adjective|adjective, of|adverb|tops|act|animal|artifact|attribute|body|cognition
    communication|event|feeling|food|group|location|motive|object|person|phenomenon
    plant|possession|process|quantity|relation|shape|state|substance|time
    body|change|cognition|communication|competition|consumption|contact|creation|emotion|motion
    perception|possession|social|stative|weather|participle
"""
NAMES = tuple(
    name.strip() for line in _NAMES.split("\n") for name in line.split("|") if name.strip()
)
_POS = {"1": "noun", "2": "verb", "3": "adj.", "4": "adv.", "5": "adj."}


def described(key: str) -> str:
    """Say of a sense key what it is about: `head%1:08:00::` is a noun, of bodies."""
    _, _, rest = key.partition("%")
    kind, *numbers = rest.split(":")
    if kind not in _POS or not numbers or not numbers[0].isdecimal():
        return key
    file = int(numbers[0])
    about = f" {NAMES[file]}" if kind in "12" and file < len(NAMES) else ""
    return f"{_POS[kind]}{about} ({key.rstrip(':')})"
