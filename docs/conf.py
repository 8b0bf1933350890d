"""How Sphinx builds the site: `make docs`, offline, with warnings as errors."""

import re
from pathlib import Path

from sphinx.application import Sphinx

import butfor

project = "butfor"
author = "The butfor developers"
copyright = author  # the name that Sphinx wants
version = release = butfor.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
smartquotes = False  # options such as --out stay as they are
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # seconds for a cell: the first ones may compile every kernel
nb_merge_streams = True
nb_render_markdown_format = "myst"

# names in backticks lead to their page, if they have one
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {  # said by name, not spelled out
    name: name
    for name in (
        "ArrayLike",
        "Floats",
        "Integers",
        "Levels",
        "Mechanism",
        "Model",
        "Offsets",
        "Policy",
        "Progress",
        "Reviews",
        "StudySource",
    )
}
nb_output_stderr = "remove-warn"
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"butfor {version}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_baseurl = ""

# What the theme and Sphinx leave out and screen readers or keyboards need.
ACCESSIBLE = {
    r'(<p class="caption" role="heading")>': r'\1 aria-level="2">',
    r'<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    r'<aside class="toc-drawer([^"]*)">': r'<aside class="toc-drawer\1" aria-label="This page">',
    r"<pre>": '<pre tabindex="0">',
    r'(<div class="table-wrapper[^"]*")>': r'\1 tabindex="0">',
    r'(<div class="output text_html")>': r'\1 tabindex="0">',
    r"<th\b[^>]*>(<p></p>)?</th>": "<td></td>",
    r'(?<!</h1>)(<div id="search-results">)': r"<h1>Search</h1>\1",
}


def _make_accessible(app: Sphinx, error: Exception | None) -> None:
    """Complete the pages that were written; a second time changes nothing."""
    for path in Path(app.outdir).rglob("*.html") if error is None else ():
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in ACCESSIBLE.items():
            text = re.sub(pattern, replacement, text)
        path.write_text(text, encoding="utf-8")


def _name_aliases(
    app: Sphinx, what: str, name: str, obj: object, options: object, shown: str | None, returns: str
) -> tuple[str | None, str]:
    """Write aliases by their names in unions too, where Sphinx shows how it represents them."""
    return re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", shown) if shown else shown, returns


def setup(app: Sphinx) -> None:
    """Let Sphinx call what completes signatures and pages."""
    app.connect("autodoc-process-signature", _name_aliases)
    app.connect("build-finished", _make_accessible)
