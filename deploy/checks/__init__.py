"""Whether a live Slurm is set up for jobs that share cores, and what to write where it is not.

``configuration`` is what is known of it, and asks Slurm; ``judge`` has the rules and does nothing else.
"""

from deploy.checks.configuration import Advice, Configuration, Grade, look
from deploy.checks.judge import judge, judge_binding, judge_start

__all__ = ["Advice", "Configuration", "Grade", "judge", "judge_binding", "judge_start", "look"]
