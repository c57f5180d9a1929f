"""The one allow-list of HTML. What is not named here reaches no page, wherever it came from."""

from __future__ import annotations

import re
from functools import cache

import nh3


def _words(text: str) -> set[str]:
    return set(text.split())


TEXT_TAGS = _words("""
    a blockquote br code div em h1 h2 h3 h4 h5 h6 hr img li ol p pre s section span strong sup
    table tbody td th thead tr ul
""")
TRANSCRIPT_TAGS = {"details", "summary"}
MATH_TAGS = _words("""
    math menclose mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow mspace msqrt
    mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none
""")
TAGS = TEXT_TAGS | TRANSCRIPT_TAGS | MATH_TAGS

ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title"},
    "code": {"data-tail", "dir"},
    "details": {"open"},
    "img": {"alt", "src", "title"},
    "ol": {"dir", "start"},
    "pre": {"data-lang", "dir"},
    "blockquote": {"data-tail", "data-tone", "dir"},
    "span": {"data-status"},
    "td": {"align", "dir"},
    "th": {"align", "dir"},
    "math": {"display"},
    "menclose": {"notation"},
    "mfrac": {"bevelled", "linethickness"},
    "mi": {"mathvariant"},
    "mo": _words("accent fence form largeop maxsize minsize movablelimits separator stretchy"),
    "mover": {"accent"},
    "mpadded": {"width"},
    "mspace": {"width"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mtable": {"columnalign", "columnlines", "displaystyle", "frame", "rowlines"},
    "mtd": {"columnalign"},
    "munder": {"accentunder"},
    "munderover": {"accent", "accentunder"},
} | {tag: {"data-tail", "dir"} for tag in _words("div h1 h2 h3 h4 h5 h6 li p table ul")}

CODE_CLASSES = _words("c k s m f t d v g-d g-i g-h")
"""Classes of code: comment, keyword, string, number, function, type, decorator, variable, diff and its headings."""

CLASSES: dict[str, set[str]] = {
    "a": {"nbagents-image"},
    "blockquote": {"nbagents-note", "nbagents-reasoning"},
    "details": {"nbagents-tool", "nbagents-reasoning"},
    "div": {"nbagents", "nbagents-item"}
    | {f"nbagents-{kind}" for kind in ("user", "assistant", "reasoning", "tool", "approval", "note", "usage", "footer")}
    | {"nbagents-math", "mathjax_ignore", "tex2jax_ignore", "mathjax_process", "tex2jax_process"},
    "li": {"nbagents-task"},
    "section": {"nbagents-footnotes"},
    "span": {
        *CODE_CLASSES,
        "nbagents-status",
        "nbagents-brief",
        "nbagents-took",
        "nbagents-math",
        "mathjax_process",
        "tex2jax_process",
    },
}

LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
RASTER_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z", re.IGNORECASE)
_LENGTH = re.compile(r"[+-]?\d?(?:\.\d+)?(?:em|ex|pt|px)\Z")
_SAFE_VALUE = re.compile(r"[\w .#+-]*\Z")


def sanitize(html: str) -> str:
    """Return `html` with everything removed that the allow-list does not name; text stays.

    Links lead to http, https or mailto only and open elsewhere without a referrer; images are `data:` rasters; there is
    no style, script, form, frame, SVG, id or event handler. The result is well-formed, whatever went in.

    Example:
        >>> sanitize('<p onclick="x()">Hi <script>alert(1)</script></p>')
        '<p>Hi </p>'
    """
    return _cleaner().clean(html)


@cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=TAGS,
        clean_content_tags={"script", "style", "iframe", "noscript", "template", "title", "textarea"},
        attributes=ATTRIBUTES,
        attribute_filter=_checked,
        allowed_classes=CLASSES,
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes={"http", "https", "mailto", "data"},
    )


def _checked(tag: str, attribute: str, value: str) -> str | None:
    """Pass a value of a kind that the attribute is meant for."""
    match attribute:
        case "href":
            return value if LINK.match(value) else None
        case "src":
            return value if RASTER_IMAGE.match(value) else None
        case "dir":
            return value if value in ("auto", "ltr", "rtl") else None
        case "start":
            return value if value.isascii() and value.isdigit() and len(value) < 10 else None
        case "width" | "linethickness" | "maxsize" | "minsize":
            return value if _LENGTH.match(value) else None
        case "alt" | "title" | "rel" | "class" | "target":
            return value
    return value if _SAFE_VALUE.match(value) else None
