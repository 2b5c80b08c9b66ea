"""What users call documents its parameters and its result; ruff's D rules check the form."""

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REFERENCE = re.findall(
    r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text("utf-8"), re.MULTILINE
)
INTEGRATIONS = sorted((ROOT / "elmore/integrations").rglob("*.py"))
SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$", re.MULTILINE)


def sections(docstring: str) -> dict[str, str]:
    """Return the text of each section of a Google-style docstring."""
    parts = SECTION.split(inspect.cleandoc(docstring))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def find_gaps(name: str, parameters: list[str], returns: str, docstring: str) -> list[str]:
    """Return what the docstring of a function or method does not say."""
    documented = sections(docstring)
    names = re.findall(r"^    \**(\w+): ", documented.get("Args", ""), re.MULTILINE)
    gaps = [f"{name}: {each} is not documented" for each in parameters if each not in names]
    gaps += [f"{name}: has no parameter {each}" for each in names if each not in parameters]
    is_said = {"Returns", "Yields"} & set(documented) or docstring.startswith("Return ")
    if returns != "None" and not is_said:
        gaps.append(f"{name}: the result is not documented")
    return gaps


def inspect_function(name: str, function: Callable) -> list[str]:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters if each not in ("self", "cls")]
    returns = "None" if signature.return_annotation in (None, "None") else "something"
    return find_gaps(name, parameters, returns, function.__doc__ or "")


def public_callables(name: str) -> Iterator[tuple[str, Callable]]:
    module, _, attribute = name.rpartition(".")
    item = getattr(importlib.import_module(module), attribute)
    if not inspect.isclass(item):
        yield name, item
        return
    for key, member in vars(item).items():
        function = getattr(member, "__func__", member)
        if not key.startswith("_") and inspect.isfunction(function):
            yield f"{name}.{key}", function


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_documents_every_parameter_and_result(name):
    functions = public_callables(name)
    assert [gap for each in functions for gap in inspect_function(*each)] == []


@pytest.mark.parametrize("name", REFERENCE)
def test_a_class_of_the_reference_documents_its_constructor(name):
    module, _, attribute = name.rpartition(".")
    item = getattr(importlib.import_module(module), attribute)
    fields = getattr(item, "_fields", None) is not None or dataclasses.is_dataclass(item)
    if not inspect.isclass(item) or fields or "__init__" not in vars(item):
        return
    parameters = [each for each in inspect.signature(item.__init__).parameters if each != "self"]
    assert find_gaps(name, parameters, "None", item.__doc__ or "") == []


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in (*named, *rest) if each.arg not in ("self", "cls")]


@pytest.mark.parametrize("path", INTEGRATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_integration_documents_its_functions_and_constructors(path):
    """Methods are not checked: most have the signature of the other package."""
    gaps = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node) or ""
        if isinstance(node, ast.FunctionDef):
            returns = ast.unparse(node.returns) if node.returns else "None"
            gaps += find_gaps(node.name, parameters_of(node), returns, docstring)
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                gaps += find_gaps(node.name, parameters_of(method), "None", docstring)
    assert gaps == []


def test_a_gap_is_found():
    docstring = """Do it.

    Args:
        text: The text.
        gone: Nothing.
    """
    assert find_gaps("do", ["text", "more"], "str", docstring) == [
        "do: more is not documented",
        "do: has no parameter gone",
        "do: the result is not documented",
    ]
