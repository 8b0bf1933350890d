"""What the report and the review app share: words, views of episodes, charts, static files.

`static/style.css` is the style of both; `static/charts.js` draws templates and swaps their rows.
"""

from pathlib import Path

from butfor.present import charts
from butfor.present.stays import Stays
from butfor.present.text import straight

STATIC = Path(__file__).parent / "static"

__all__ = ["STATIC", "Stays", "charts", "straight"]
