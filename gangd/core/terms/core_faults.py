"""What the core refuses. A refused event has changed nothing."""

from __future__ import annotations


class CoreError(Exception):
    """Root of the core's exceptions; the program around it is at fault, or what it passes on is wrong."""


class InvalidEvent(CoreError):  # noqa: N818 - the event is what is invalid
    """The event contradicts the state or itself; the message says how. Nothing was changed."""


class InvalidTransition(CoreError):  # noqa: N818 - the word says it
    """A state machine was asked for a transition that its table does not have: an error in the core."""


class InvalidSettings(CoreError):  # noqa: N818 - the word says it
    """Settings that cannot be obeyed; the message says which and what is allowed."""
