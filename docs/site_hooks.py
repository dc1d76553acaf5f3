"""Lets MkDocs build these pages as they are: what they link to outside docs/ (code, recipes) is no page of the site.

Such a link becomes its text. A link to a file that does not exist stays as it is, so `mkdocs build --strict` refuses it.
"""

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page; gives the text to render."""
    folder = Path(page.file.abs_src_path).parent
    docs = Path(config["docs_dir"]).resolve()

    def keep_or_flatten(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[1] if target.exists() and not target.is_relative_to(docs) else link[0]

    return LINK.sub(keep_or_flatten, markdown)
