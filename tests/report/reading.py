"""Reads a report back as a browser would, and complains about what a browser would forgive."""

from html.parser import HTMLParser

_VOID = {"meta", "br", "img", "link", "input", "hr"}
# elements of SVG, which may be written as <x/>
_OPTIONAL = {"rect", "line", "circle", "path", "use", "image", "text", "g"}


class Page(HTMLParser):
    """Tags, texts and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _OPTIONAL, f"<{tag}/> is not empty in HTML"
        self.tags.append((tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """As a person reads it, without the marks that say where a line may break."""
        return " ".join(" ".join(self.texts).translate({0x2060: None, 0x200B: None}).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def check(self) -> None:
        """What every report must hold to."""
        assert not self.all("script")
        assert not self.all("link")
        for tag, attributes in self.tags:
            assert not any(name.startswith("on") for name in attributes), (tag, attributes)
            for name in ("src", "href", "xlink:href"):
                where = attributes.get(name, "#")
                assert where.startswith(("#", "data:image/")), f"{tag} refers to {where[:80]}"
        ids = [a["id"] for _, a in self.tags if "id" in a]
        assert len(ids) == len(set(ids)), "an id is used twice"
        for attributes in (*self.all("use"), *self.all("a")):
            assert attributes["href"].removeprefix("#") in ids
        for attributes in self.all("svg"):
            if attributes.get("aria-hidden") == "true":
                continue
            assert attributes.get("role") == "img"
            labels = attributes.get("aria-labelledby", "").split()
            assert attributes.get("aria-label") or (labels and set(labels) <= set(ids))
        assert "default-src 'none'" in self.all("meta")[1]["content"]
