"""Settings of Sphinx for `make docs`: Markdown by MyST, the Furo theme."""

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
