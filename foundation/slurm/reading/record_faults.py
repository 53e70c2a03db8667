"""How talking to Slurm fails."""

from __future__ import annotations

from foundation.errors import ClusterError


class SlurmUnreachableError(ClusterError):
    """Slurm's controller did not answer: it is down, restarting, or too busy."""


class SlurmRefusedError(ClusterError):
    """Slurm understood and said no; doing the same again will not help."""


class UnreadableJobError(ClusterError):
    """Slurm has a job and its record cannot be read: whether it runs is not known."""


class UnknownFormatError(ClusterError):
    """Slurm printed what this version of the toolkit cannot read."""


class AnswerTooLongError(ClusterError):
    """Slurm printed more than is read; users can make it so."""


class SubmitUncertainError(ClusterError):
    """A submission timed out: the job may or may not exist. Look for its name before another try."""
