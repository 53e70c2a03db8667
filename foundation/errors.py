"""The errors a user, a cluster or a peer can cause; each says what happened, to what, and what to do.

``OsubError`` is the root. The command line prints the message on one line and exits with
``exit_code``: 2 for usage (the command was called wrongly), 1 for everything else.
Expected races, such as a job that ends while it is being frozen, are values and not exceptions.
"""

from __future__ import annotations


class OsubError(Exception):
    """Root of every error that the toolkit raises on purpose."""

    exit_code = 1


class UsageError(OsubError):
    """The user's words cannot be carried out as given (option, argument or configuration key)."""

    exit_code = 2


class InputError(OsubError):
    """A file that the user named cannot be used: missing, malformed, unreadable or empty."""


class OutputError(OsubError):
    """A result cannot be written: folder exists already, is not writable, or the disk is full."""


class ClusterError(OsubError):
    """Slurm, or a part of the host that runs it, refused, failed or cannot be reached."""


class PeerError(OsubError):
    """Another process of the toolkit sent something that its protocol does not allow."""


class HostError(OsubError):
    """This host lacks something that the work needs; the message says how to get it."""


class TrustError(OsubError):
    """A file or folder is where another user could have put it, or where he could change it."""
