"""The licence of a model that another model and a text went into."""

from elmore.weights.bundle import Card


def joint_licence(other: Card, name: str, own: str, text: str) -> str:
    """Return the licences of another model and of a text, once if they are equal.

    Args:
        other: The card of the other model.
        name: Its name.
        own: The licence of the text; empty if unknown.
        text: Which text that is, in words.
    """
    licences = [other.licence or "unknown", own or "unknown"]
    if len(set(licences)) == 2:
        licences = [f"{licences[0]} ({name})", f"{licences[1]} ({text})"]
    return "; ".join(dict.fromkeys(licences))
