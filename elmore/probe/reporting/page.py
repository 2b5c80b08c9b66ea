"""A report as one self-contained HTML page: sections of tables, figures and coloured words.

The template page.html escapes all text. Its content security policy forbids network access.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2
from markupsafe import Markup

import elmore
from elmore.probe.drawing import canvas
from elmore.probe.drawing.canvas import Canvas, strip_invalid_xml

_MANY_ROWS = 25  # longer tables are folded


@dataclass(frozen=True)
class Number:
    """A number and its formatted text; the page contains both."""

    value: float
    text: str


@dataclass(frozen=True)
class Highlight:
    """A word in bold, and the text around it."""

    before: str
    word: str
    after: str


@dataclass(frozen=True)
class ColouredWord:
    """A word on a coloured background, with a tooltip."""

    text: str
    opacity: float
    tooltip: str


Cell = str | int | Number | Highlight | None
Rows = Sequence[Mapping[str, Cell]]


@dataclass(frozen=True)
class Table:
    """A table; a long one is folded, or any one with `fold`."""

    caption: str
    rows: Rows
    fold: bool = False

    @property
    def is_folded(self) -> bool:
        """Whether the rows are hidden until the reader opens the table."""
        return self.fold or len(self.rows) > _MANY_ROWS

    @property
    def columns(self) -> dict[str, bool]:
        """The keys of all rows, and whether a column holds only numbers."""
        keys = dict.fromkeys(key for row in self.rows for key in row)
        return {
            key: all(isinstance(row.get(key), int | Number | None) for row in self.rows)
            for key in keys
        }


@dataclass
class Section:
    """A part of the page, and the figures in it by file name."""

    title: str
    blocks: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Canvas] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """The target of links to this section."""
        return "-".join(self.title.lower().split())

    def add_paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self.blocks.append({"kind": "paragraph", "text": text})

    def add_heading(self, text: str) -> None:
        """Add a heading within the section."""
        self.blocks.append({"kind": "heading", "text": text})

    def add_words(self, words: Sequence[ColouredWord]) -> None:
        """Add a paragraph of coloured words."""
        self.blocks.append({"kind": "words", "words": words})

    def add_table(self, caption: str, rows: Rows, *, fold: bool = False) -> None:
        """Add a table."""
        self.blocks.append({"kind": "table", "table": Table(caption, rows, fold)})

    def add_figures(self, figures: Mapping[str, Canvas], *tables: Table) -> None:
        """Add figures and tables side by side, where the page is wide enough."""
        self.figures.update(figures)
        self.blocks.append({"kind": "figures", "figures": figures.values(), "tables": tables})


def render(title: str, summary: Table, others: str, sections: Sequence[Section]) -> str:
    """Return the page: a summary table, a line about other inputs, and the sections."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elmore.probe", "reporting"),
        autoescape=True,
        finalize=_strip,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        summary=summary,
        others=others,
        sections=sections,
        stylesheet=canvas.stylesheet(),
        version=elmore.__version__,
    )


def _strip(value: Any) -> Any:  # noqa: ANN401 -- any value of a template expression
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return strip_invalid_xml(value) if is_text else value
