"""A second process that thaws what the agent froze when the agent dies or loses its lease.

Begin with ``gangd.guardian.statefile``, the memory that both share, then ``guardian_watch`` (the guardian's
loop). ``spawn`` is the agent's side. Everything that the guardian itself imports is standard library: it
starts in tens of milliseconds and stays small.
"""
