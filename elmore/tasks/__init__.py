"""Tasks that show what vectors are worth: one folder each, found by name through `registry`."""

DEFAULT_EMBEDDER = "elmo:"
"""What a task reads unless another embedder is named: the model that comes with the package."""
