"""elmore info [MODEL]: describe a model."""

from elmore.cli.options import DefaultModelArgument, Json, Vocabulary
from elmore.cli.tables import print_json


def info(
    model: DefaultModelArgument = None,
    vocabulary: Vocabulary = None,
    json: Json = False,
) -> None:
    """Describe a model: sizes, layers, licence, training data, checksums."""
    from dataclasses import asdict

    from elmore.weights import card, catalogue, checksums, pretrained

    sources = model or []
    name = pretrained.model_name(*sources)
    entry = catalogue.known_models().get(name) if name else None
    status = catalogue.model_status(name, entry) if name and entry else ""
    if entry and status == "remote":
        facts = {key: value for key, value in asdict(entry).items() if value}
        facts |= {"state": "not downloaded yet"}
    else:
        bundle = pretrained.load(*sources, vocabulary=vocabulary)
        digests = {
            path.name: checksums.file_sha256(path) for path in pretrained.model_files(*sources)
        }
        facts = card.model_facts(bundle) | {"sha256": digests}
    if json:
        print_json(facts, indent=2)
    else:
        print(card.format_facts(facts))
