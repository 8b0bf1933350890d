"""What the pages for readers share, report and review app: stays in words and rows, and static/.

`static/style.css` is the look of both, `static/charts.js` draws templates and swaps their rows.
"""

from pathlib import Path

from butfor.present import charts
from butfor.present.stays import Stays
from butfor.present.texts import straight

STATIC = Path(__file__).parent / "static"

__all__ = ["STATIC", "Stays", "charts", "straight"]
