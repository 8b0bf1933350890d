from .causation import conditional_effect as conditional_effect
from .causation import probability_of_necessity as probability_of_necessity
from .causation import (
    probability_of_necessity_and_sufficiency as probability_of_necessity_and_sufficiency,
)
from .causation import probability_of_sufficiency as probability_of_sufficiency
from .scm import DiscreteSCM as DiscreteSCM
