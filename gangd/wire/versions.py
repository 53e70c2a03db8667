"""Versions of the protocol, and how successive versions understand each other.

A cluster is upgraded node by node, so for a while agents and controllers of two versions meet. They may be
one version apart:

* *Up* (agent to controller): the controller takes messages of the version before its own, of its own, and of
  the one after. Fields that it does not know are ignored: they tell more of what an agent saw, and nothing
  that the controller knows means something else for them. So a field may be added upwards, and none may
  change its meaning.
* *Down* (controller to agent, plans and answers): the controller speaks to each node the version of its
  hello, or its own where that is lower; to all nodes at once it speaks the oldest. An agent takes its own
  version and the one before. A field that it does not know is refused, for it could change who is frozen:
  what an agent does not understand it must not half obey. So a controller sends a new field only to who
  speaks its version.
* An agent begins with its own version. Where it is not answered it tries the one before now and then.

History: 2, strict both ways; 3, as said here, agents keep the plan of a former controller; 4, plans say how
many cores jobs have.
"""

from __future__ import annotations

VERSION = 4
OLDEST = VERSION - 1
NEWEST = VERSION + 1
"""The newest that is understood upwards."""


def common(peer_version: int) -> int:
    """Return the version in which to speak with a peer of version ``peer_version``."""
    return min(VERSION, peer_version)
