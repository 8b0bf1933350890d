from .bounds import row_bounds as row_bounds
from .properties import is_monotone as is_monotone
from .properties import is_stable as is_stable
