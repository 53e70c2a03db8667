"""What a peer can do wrong on the wire; the IO layer counts each, drops the message and goes on."""

from __future__ import annotations

from foundation.errors import PeerError


class WireError(PeerError):
    """Root of all wire faults; ``kind`` is the name under which they are counted."""

    kind = "wire"


class MalformedError(WireError):
    """The bytes are no message of the protocol: bad framing, unknown type, value outside its bounds."""

    kind = "malformed"


class VersionError(WireError):
    """The message is of another protocol version; upgrade the older side."""

    kind = "version"


class WrongNodeError(WireError):
    """A plan for another node arrived, or a message whose sender is not the node that it names."""

    kind = "wrong_node"


class ReplayedError(WireError):
    """The (epoch, sequence) pair did not grow: a message was replayed, reordered or delivered twice."""

    kind = "replayed"


class ForeignControllerError(WireError):
    """A controller other than the one being followed, and not a later one, speaks: two run by mistake."""

    kind = "foreign_controller"


class MissedPlanError(WireError):
    """A plan was lost on the way: the message builds on one that never came. Thaw and ask ``Resend``."""

    kind = "missed_plan"
