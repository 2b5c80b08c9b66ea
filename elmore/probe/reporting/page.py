"""A page of HTML that needs nothing else: tables, figures, sections, one style.

It asks the network for nothing, and its policy forbids that it ever does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources

import elmore
from elmore.probe.drawing import canvas
from elmore.probe.drawing.canvas import Canvas, printable

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LONG = 40  # letters of a cell, which then is not made narrow
_MANY = 25  # rows of a table, from which on one opens it to see them


@dataclass(frozen=True)
class Number:
    """A number as it is shown; the page holds it to the last digit."""

    value: float
    shown: str


Cell = str | int | Number | None


@dataclass
class Section:
    """A part of the page, and the figures in it."""

    title: str
    parts: list[str] = field(default_factory=list)
    figures: dict[str, Canvas] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return "-".join(self.title.lower().split())

    def say(self, words: str) -> None:
        """Add a paragraph."""
        self.parts.append(f"<p>{text(words)}</p>")

    def head(self, words: str) -> None:
        """Add a heading within the section."""
        self.parts.append(f"<h3>{text(words)}</h3>")

    def html(self, written: str) -> None:
        """Add what is written in HTML already."""
        self.parts.append(written)

    def draw(self, **figures: Canvas) -> None:
        """Add figures side by side, each by the name of its file."""
        self.figures.update(figures)
        drawn = "".join(f"<figure>{figure.svg()}</figure>" for figure in figures.values())
        self.parts.append(f'<div class="figures">{drawn}</div>')

    def beside(
        self, name: str, figure: Canvas, caption: str, rows: Sequence[Mapping[str, Cell]]
    ) -> None:
        """Add a figure with its numbers beside it, where the page is wide enough."""
        self.figures[name] = figure
        drawn = f"<figure>{figure.svg()}</figure>{_folded(caption, rows)}"
        self.parts.append(f'<div class="figures">{drawn}</div>')

    def tables(self, tables: Mapping[str, Sequence[Mapping[str, Cell]]]) -> None:
        """Add tables side by side, each under its caption."""
        drawn = "".join(_folded(caption, rows) for caption, rows in tables.items())
        self.parts.append(f'<div class="figures">{drawn}</div>')

    def table(
        self, caption: str, rows: Sequence[Mapping[str, Cell]], *, fold: bool = False
    ) -> None:
        """Add a table; a long one is folded, or any with `fold`."""
        self.parts.append(_folded(caption, rows, fold=fold))


def _folded(caption: str, rows: Sequence[Mapping[str, Cell]], *, fold: bool = False) -> str:
    drawn = table(caption, rows)
    if len(rows) <= _MANY and not fold:
        return drawn
    return f"<details><summary>{text(caption)}: {len(rows)} rows</summary>{drawn}</details>"


def text(words: str) -> str:
    """Write words so that nothing in them is HTML."""
    return escape(printable(words))


def table(caption: str, rows: Sequence[Mapping[str, Cell]]) -> str:
    """Write rows that share their keys; numbers stand at the right."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key for key in columns if all(_is_number(row.get(key)) for row in rows)}
    head = "".join(_cell("th", key, key in numeric, ' scope="col"') for key in columns)
    body = "".join(
        "<tr>" + "".join(_cell("td", row.get(key), key in numeric) for key in columns) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(cell: Cell) -> bool:
    return cell is None or isinstance(cell, int | Number)


def _cell(tag: str, cell: Cell, right: bool, more: str = "") -> str:
    look = ' class="number"' if right else ""
    if isinstance(cell, str) and len(cell) > _LONG:
        look = ' class="text"'
    if isinstance(cell, Number):
        inside = f'<data value="{cell.value!r}">{text(cell.shown)}</data>'
    else:
        inside = "" if cell is None else text(f"{cell:,}" if isinstance(cell, int) else cell)
    return f"<{tag}{look}{more}>{inside}</{tag}>"


def whole(title: str, lead: Iterable[str], sections: Sequence[Section]) -> str:
    """Put the page together."""
    links = "".join(f'<a href="#{one.anchor}">{text(one.title)}</a>' for one in sections)
    written = "".join(
        f'<section id="{one.anchor}"><h2>{text(one.title)}</h2>{"".join(one.parts)}</section>'
        for one in sections
    )
    style = (
        resources.files("elmore.probe.reporting").joinpath("page.css").read_text(encoding="utf-8")
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{style}{canvas.style()}</style>
</head>
<body>
<header><h1>{text(title)}</h1>{"".join(lead)}</header>
<nav aria-label="sections">{links}</nav>
<main>{written}</main>
<footer>elmore {elmore.__version__}</footer>
</body>
</html>
"""
