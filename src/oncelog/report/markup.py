"""Elements of HTML and SVG, well-formed as XML too. What is not markup yet is escaped, here and nowhere else. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

_NO_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What neither HTML nor XML may hold, not even escaped: control characters and halves of surrogate pairs."""


class Markup(str):
    """Text that is markup already, and goes into other markup as it is."""

    __slots__ = ()


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: str) -> Markup:
    """One element; an attribute that is None is left out, a child that is not `Markup` is text."""
    given = "".join(
        f' {name}="{_escaped(_short(value))}"' for name, value in (attributes or {}).items() if value is not None
    )
    if not children:
        return Markup(f"<{tag}{given}/>" if tag in _EMPTY else f"<{tag}{given}></{tag}>")
    return Markup(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else _escaped(child) for child in children))


_EMPTY = {"meta", "br", "hr", "path", "line", "rect", "circle", "polyline", "polygon", "col"}
"""Elements of HTML that are never closed, and shapes of SVG: written as `<br/>`. All others get an end of their own,
since a browser that reads `<div/>` as HTML takes it for a `<div>` that goes on."""


def _escaped(text: str) -> str:
    return html.escape(_NO_TEXT.sub("\ufffd", text), quote=True)


def _short(value: object) -> str:
    """Coordinates to a hundredth: more is noise that makes files long."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
