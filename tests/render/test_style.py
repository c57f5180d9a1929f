"""The style sheet: it stays inside its element, fits both themes and can be read in each."""

from __future__ import annotations

import re

import pytest

from nbagents.render import CSS
from nbagents.render.sanitize import CODE_CLASSES
from nbagents.render.style import PAGE_CSS

RULES = [
    (selector.strip(), body)
    for selector, body in re.findall(
        r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/|@media[^{]*\{", "", CSS, flags=re.DOTALL)
    )
]
PAIRS = dict(re.findall(r"(--nb-[a-z-]+):[^;]*?light-dark\(([^)]*)\)", CSS))
LIGHT, DARK = 0, 1


def colour(name, theme):
    return PAIRS[name].split(",")[theme].strip()


def luminance(colour):
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast ratio of WCAG 2.2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize(
    ("text", "page"),
    [
        *[
            (f"--nb-code-{name}", "--nb-code-page")
            for name in ("text", "muted", "keyword", "string", "number", "function")
        ],
        *[(f"--nb-code-{name}", "--nb-code-page") for name in ("type", "added")],
        *[(f"--nb-{name}", "--nb-page") for name in ("text", "muted", "accent", "alert")],
        ("--nb-text", "--nb-raised"),
    ],
)
def test_every_text_can_be_read_on_its_page_in_both_themes(text, page, theme):
    """C98"""
    assert contrast(colour(text, theme), colour(page, theme)) >= 4.5


def test_no_colour_stands_alone():
    """C98: colours are variables; literal ones occur only as a pair for both themes."""
    assert not re.search(
        r"(?<!-)\b(color|background(-color)?|border[a-z-]*|fill):[^;}]*\b(black|white|gray|grey)\b", CSS
    )
    for sheet in (CSS, PAGE_CSS):
        assert "#" not in re.sub(r"light-dark\(#[0-9a-f]{6}, #[0-9a-f]{6}\)", "", sheet)
    for selector, body in RULES:
        if re.search(r"background: var\(--nb-(raised|code-page)\)", body):
            assert re.search(r"(?<!-)color: var\(--nb-(code-)?text\)|color: inherit", body) or "th" in selector, (
                selector
            )


def test_theme_variables_come_first():
    for name in ("text", "muted", "page", "raised", "border", "accent", "alert"):
        assert re.search(rf"--nb-{name}: var\(--jp-[a-z0-9-]+, var\(--vscode-[a-zA-Z-]+, light-dark\(", CSS)


def test_every_rule_stays_inside_the_transcript():
    for selector, _ in RULES:
        depth_aware = re.sub(r"\([^()]*\)", "", selector)
        assert all(".nbagents" in part for part in depth_aware.split(",")), selector


def test_every_class_of_code_has_a_colour():
    for name in CODE_CLASSES:
        assert re.search(rf"pre [^{{]*\.{re.escape(name)}\b[^{{]*\{{[^}}]*color", CSS), name


def test_blocks_are_contained_and_motion_can_be_turned_off():
    assert "contain: content" in dict(RULES)[".nbagents .nbagents-block"]
    assert "prefers-reduced-motion: reduce" in CSS
