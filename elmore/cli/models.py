"""elmore models: list the models that have a name."""

from typing import Annotated

import typer


def models(
    json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """List the models that can be loaded by name."""
    from elmore.cli.tables import print_table
    from elmore.weights import catalogue

    rows = [
        {
            "name": name,
            "language": entry.language,
            "licence": entry.licence,
            "training data": entry.data,
            "state": catalogue.model_status(name),
        }
        for name, entry in catalogue.known_models().items()
    ]
    print_table(rows, as_json=json)
