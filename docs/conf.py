"""Settings of Sphinx for `make docs`: Markdown by MyST, the Furo theme."""

import re

project = "torch-ringdist"
copyright = "the torch-ringdist authors"  # Sphinx reads this name
author = "the torch-ringdist authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["requirements.txt"]
html_theme = "furo"
html_title = "torch-ringdist"
myst_heading_anchors = 3
# Code blocks without a language are shell commands or pictures.
highlight_language = "none"

# A link to a file of the repository outside docs/, without its anchor.
OUTSIDE = re.compile(r"\]\(((?:\.\./)+(?:benchmarks|csrc|examples)/[^)#\s]*)(?:#[^)\s]*)?\)")


def link_outside(app, docname, source):
    """Makes links to files outside docs/ downloads. MyST warns about them otherwise."""
    source[0] = OUTSIDE.sub(r"](path:\1)", source[0])


def setup(app):
    app.connect("source-read", link_outside)
