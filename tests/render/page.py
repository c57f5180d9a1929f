"""A page without a browser: the smallest DOM that can apply the operations of `nbagents.render`."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any

VOID = {"br", "hr", "img"}


@dataclass
class Element:
    """A tag with attributes and children; neighbouring texts are one child."""

    tag: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def add(self, child: Element | str) -> None:
        if isinstance(child, str) and self.children and isinstance(self.children[-1], str):
            self.children[-1] += child
        elif child != "":
            self.children.append(child)

    def elements(self) -> list[Element]:
        return [child for child in self.children if isinstance(child, Element)]

    def find_all(self, name: str, value: str | None = None) -> list[Element]:
        """Elements inside that have the attribute `name`, with `value` if given."""
        found = []
        for child in self.elements():
            if name in child.attrs and value in (None, child.attrs[name]):
                found.append(child)
            found.extend(child.find_all(name, value))
        return found

    def walk(self) -> list[Element]:
        return [e for child in self.elements() for e in (child, *child.walk())]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def inner(self) -> str:
        return "".join(escape(c, quote=False) if isinstance(c, str) else c.outer for c in self.children)

    @property
    def outer(self) -> str:
        attrs = "".join(f' {name}="{escape(value)}"' for name, value in sorted(self.attrs.items()))
        return f"<{self.tag}{attrs}>" + ("" if self.tag in VOID else f"{self.inner}</{self.tag}>")

    def set_inner(self, html: str) -> None:
        self.children = parse(html).children


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root")
        self.stack = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].add(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.stack[-1].add(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != "doctype html":
            raise AssertionError(f"a declaration: {decl!r}")


def parse(html: str) -> Element:
    """Return a root element with the nodes of `html`; the HTML must be well-formed."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert builder.stack == [builder.root], f"not closed: {[e.tag for e in builder.stack[1:]]}"
    return builder.root


def apply_block_op(blocks: Element, op: dict[str, Any]) -> None:
    """Apply one operation of `nbagents.render.changes` to the element that holds the blocks."""
    if op["op"] == "cut":
        del blocks.children[op["n"] :]
        return
    if op["op"] == "block":
        if op["i"] == len(blocks.children):
            blocks.children.append(Element("div"))
        blocks.elements()[op["i"]].set_inner(op["html"])
        return
    block = blocks.elements()[op["i"]]
    if op["op"] == "item":
        holder = block.elements()[0]
        if holder.tag == "table":
            holder = next(e for e in holder.elements() if e.tag == "tbody")
        (new,) = parse(op["html"]).children
        assert op["j"] <= len(holder.children)
        holder.children[op["j"] : op["j"] + 1] = [new]
        return
    (marked,) = block.find_all("data-tail")
    match op["op"]:
        case "append":
            marked.add(op["text"])
        case "tail":
            del marked.children[op["keep"] :]
            for node in parse(op["html"]).children:
                marked.add(node)
        case "close":
            del marked.attrs["data-tail"]
        case other:
            raise AssertionError(f"unknown operation {other!r}")


def page_of(blocks: list[str]) -> Element:
    """Return the element that holds `blocks`, as a view that comes late would build it."""
    root = Element("root")
    for html in blocks:
        block = Element("div")
        block.set_inner(html)
        root.children.append(block)
    return root
