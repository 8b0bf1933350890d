"""What the pages for readers share, report and review app: stays in words and rows, and static/.

`static/style.css` is the look of both, `static/charts.js` draws templates and swaps their rows.
"""

from pathlib import Path

from butfor.pages.stays import Stays
from butfor.pages.texts import straight

STATIC = Path(__file__).parent / "static"

__all__ = ["STATIC", "Stays", "straight"]
