"""Tasks that show what vectors are worth: one folder each, and one line here.

A name stands for the module that holds its `TASK`, with its `recipe.toml` beside it; the module is
imported only when it is asked for, so that the list costs nothing.
"""

EMBEDDER = "elmo:"
"""What a task reads unless another embedder is named: the model that comes with the package."""

TASKS = {
    "ner": "elmore.tasks.ner.task",
    "pos": "elmore.tasks.pos.task",
    "sst": "elmore.tasks.sst.task",
    "snli": "elmore.tasks.snli.task",
    "squad": "elmore.tasks.squad.task",
    "srl": "elmore.tasks.srl.task",
    "coref": "elmore.tasks.coref.task",
}
