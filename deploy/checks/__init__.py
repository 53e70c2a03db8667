"""Whether a live Slurm is set up for jobs that share cores, and what to write where it is not.

``configuration`` is what is known of it, ``rules`` judge that and do nothing else, ``look`` asks Slurm.
"""

from deploy.checks.configuration import Advice, Configuration, Grade
from deploy.checks.judge import judge
from deploy.checks.look import look

__all__ = ["Advice", "Configuration", "Grade", "judge", "look"]
