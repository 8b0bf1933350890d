import pathlib

from . import charts as charts
from .stays import Stays as Stays
from .text import straight as straight

STATIC: pathlib.Path
