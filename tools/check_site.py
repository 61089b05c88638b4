"""Fails if a built site fetches anything, or links to a page or place that it does not have.

python tools/check_site.py build/site
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself; links of <a> are only followed by readers.
FETCHED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
}


class Page(HTMLParser):
    """The places of a page that can be linked to, its links, and what it fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("id", "name"):
            if (value := given.get(name)) is not None:
                self.ids.add(value)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag in FETCHED and given.get(FETCHED[tag]) and given.get("rel") != "canonical":
            self.fetched.append(str(given[FETCHED[tag]]))


def problems(site: Path) -> Iterator[str]:
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages."
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses are those of a server's root
            continue
        name = path.relative_to(site.resolve())
        for link in page.fetched:
            if urlsplit(link).netloc:
                yield f"{name} fetches {link}."
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name} links to {link}, which does not exist."
            elif parts.fragment and target in pages:
                place = unquote(parts.fragment)
                if place not in pages[target].ids and not place.startswith("__"):
                    yield f"{name} links to {link}, but there is no such place."
    for style in sorted(site.rglob("*.css")):
        if "url(http" in style.read_text(encoding="utf-8"):
            yield f"{style.relative_to(site)} fetches from the network."


def main() -> None:
    found = list(problems(Path(sys.argv[1])))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
