"""The messages between the controller and its agents: typed, bounded, versioned, and never trusted.

Down (PUB/SUB, frames ``[topic, body]``), see ``gangd.wire.messages``
    ``SlicePlan`` the schedule of one node; ``PlanChange`` a difference; ``Beat`` nothing changed;
    ``ThawNow`` at once. An agent subscribes to ``topic(node)`` and ``ALL_NODES_TOPIC``.
Up and replies (DEALER/ROUTER, frames ``[body]``), see ``gangd.wire.messages``
    ``Hello`` -> ``Welcome`` or ``AccessRefused``, ``Ping`` -> ``Pong``, ``Report``, ``Resend``, ``Farewell``.

``decode_down``, ``decode_up`` and ``decode_reply`` raise a ``WireError`` (a ``PeerError``) for anything
that is not a valid message; the caller counts it under ``error.kind`` and drops the message.
"""
