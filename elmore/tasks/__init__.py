"""Tasks that show what vectors are worth: one folder each, and one line here.

A name stands for the module that holds its `TASK`; it is imported only when it is asked for, so
that the list costs nothing.
"""

TASKS = {
    "coref": "elmore.tasks.coref.task",
    "ner": "elmore.tasks.ner.task",
    "pos": "elmore.tasks.pos.task",
}
