"""Tables in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; the first column is aligned left, the others right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        print(first[0].ljust(first[1]), *(text.rjust(width) for text, width in others), sep="  ")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    header, *lines = (f"| {' | '.join(map(str, cells))} |" for cells in (columns, *rows))
    return "\n".join([header, f"|{'---|' * len(columns)}", *lines])
