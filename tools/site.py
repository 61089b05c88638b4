"""Hooks of MkDocs: pages that are made from other files of the repository.

The gallery comes from examples/, the benchmark tables from a stored run, the changelog and the
pages for contributors from the repository's root. Nothing of it is written into docs/.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import gallery  # noqa: E402
from benchmarks import published  # noqa: E402

# Pages of the root, and what links to files become there.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "security.md",
}
LINKS = PAGES | {"README.md": "index.md", "examples/README.md": "gallery/index.md"}


def on_config(config: Any) -> Any:
    """Fills the sections that nav leaves empty."""
    shown = [{gallery.show(name).title: f"gallery/{name}.md"} for name in gallery.examples()]
    _section(config.nav, "Gallery")[:] = ["gallery/index.md", *shown]
    proofs = sorted((ROOT / "docs" / "proofs").glob("*.md"), key=lambda p: (p.stem != "bounds", p))
    _section(config.nav, "Proofs")[:] = [{_title(path): f"proofs/{path.name}"} for path in proofs]
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"), reverse=True)
    entries = [{_title(path): f"decisions/{path.name}"} for path in records]
    _section(config.nav, "Decisions")[:] = ["decisions/index.md", *entries]
    return config


def on_files(files: Files, config: Any) -> Files:
    def add(path: str, content: str | bytes) -> None:
        files.append(File.generated(config, path, content=content))

    shown = [gallery.show(name) for name in gallery.examples()]
    add("gallery/index.md", _gallery_index(shown))
    for example in shown:
        add(f"gallery/{example.name}.md", _gallery_page(example))
        for picture in example.pictures:
            add(f"gallery/{example.name}-{picture.name}", picture.read_bytes())
    for source, page in PAGES.items():
        add(page, _relinked((ROOT / source).read_text(encoding="utf-8")))
    add("decisions/index.md", _decisions())
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri == "benchmarks.md":
        markdown = markdown.replace("{{ results }}", published.tables())
    return re.sub(r"^\|.*$", _plain_pipes, markdown, flags=re.MULTILINE)


def _plain_pipes(row: re.Match[str]) -> str:
    """A row of a table. Pipes in code need a backslash elsewhere; Python-Markdown would show it."""
    return re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0])


def _section(nav: list[Any], name: str) -> list[Any]:
    """The list of a section, at any depth."""
    sections = [item for entry in nav if isinstance(entry, dict) for item in entry.items()]
    while sections:
        title, content = sections.pop()
        if title == name:
            found: list[Any] = content
            return found
        if isinstance(content, list):
            entries = [entry for entry in content if isinstance(entry, dict)]
            sections += [item for entry in entries for item in entry.items()]
    raise KeyError(f"mkdocs.yml has no section {name!r}")


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _relinked(text: str) -> str:
    """Links of a page of the root: to pages of the site, or the text alone."""

    def target(match: re.Match[str]) -> str:
        label, link = match[1], match[2]
        if link.startswith(("http", "#")):
            return match[0]
        path, _, anchor = link.partition("#")
        if path.startswith("docs/"):
            page = path.removeprefix("docs/")
        elif path in LINKS:
            page = LINKS[path]
        else:
            return label
        label = re.sub(r"^docs/([\w/]+)\.md$", r"\1", label)
        return f"[{label}]({page}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", target, text)


def _gallery_index(shown: list[gallery.Shown]) -> str:
    lines = [
        "# Gallery",
        "",
        "Every example is one file in `examples/` that needs nothing but exactmeans,",
        "matplotlib and what comes with them. The pictures were drawn when this site was built.",
        "",
        '<div class="cards">',
        "",
    ]
    for example in shown:
        picture = ""
        if example.pictures:
            picture = f'<img src="{example.name}-{example.pictures[0].name}" alt="" loading="lazy">'
        sentence = re.split(r"(?<=[.:])\s", example.text.replace("\n", " "), maxsplit=1)[0]
        lines.append(
            f'<a href="{example.name}.html">{picture}<strong>{example.title}</strong>'
            f"{sentence.rstrip(':').replace('`', '')}</a>"
        )
    return "\n".join([*lines, "", "</div>", ""])


def _gallery_page(example: gallery.Shown) -> str:
    parts = [f"# {example.title}", example.text]
    for picture in example.pictures:
        parts.append(f"![{example.title}]({example.name}-{picture.name})")
    parts += [f"`examples/{example.name}.py`:", f"```python\n{example.code}\n```"]
    if example.printed:
        parts.append(f"It prints:\n\n```text\n{example.printed}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _decisions() -> str:
    lines = [
        "# Decisions",
        "",
        "What was tried, measured, and kept or not. A record says what the question was, how it",
        "was measured and what followed. It is not changed later; a newer record may replace it.",
        "",
    ]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md"), reverse=True):
        lines.append(f"- [{_title(path)}]({path.name})")
    return "\n".join([*lines, ""])
