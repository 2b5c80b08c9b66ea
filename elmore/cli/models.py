"""elmore models, elmore models package: the models that have a name, and a package of a model."""

from pathlib import Path
from typing import Annotated

import typer

from elmore.cli.options import Json, ModelArgument, Overwrite
from elmore.cli.tables import print_table

models = typer.Typer(name="models", add_completion=False, invoke_without_command=True)


@models.callback()
def list_models(
    context: typer.Context,
    json: Json = False,
) -> None:
    """List the models that can be loaded by name: bundled, installed or published."""
    if context.invoked_subcommand is not None:
        return
    from elmore.weights import catalogue

    rows = [
        {
            "name": name,
            "language": entry.language,
            "licence": entry.licence,
            "training data": entry.data,
            "state": catalogue.model_status(name, entry),
        }
        for name, entry in catalogue.known_models().items()
    ]
    print_table(rows, as_json=json)


@models.command()
def package(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the wheel.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name for elmore.load.", show_default="that of the card or folder"),
    ] = None,
    version: Annotated[str, typer.Option(help="Version of the package.")] = "1.0.0",
    source: Annotated[
        bool, typer.Option("--source", help="Write the source of the package, OUT/NAME, instead.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Make a package of a model: a wheel that pip installs, so that its name loads it.

    The wheel is called elmore_model_NAME-VERSION-py3-none-any.whl.
    """
    from elmore.weights.packaging import package_model

    path = package_model(
        model, out, name=name, version=version, as_source=source, overwrite=overwrite
    )
    print(path)
