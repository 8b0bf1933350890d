"""What the report and the review app share: words, views of episodes, charts, static files.

`static/style.css` is the style of both; `static/charts.js` draws templates and swaps their rows.
The names are listed in `__init__.pyi` and loaded when they are first used: words need no charts.
"""

from pathlib import Path

import lazy_loader

STATIC = Path(__file__).parent / "static"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
