"""What a comparison of runs says in words: whether waiting got shorter, what it cost, and how sure that is.

``settings`` tells which runs are repetitions of one setting, ``paired`` measures differences job by job with
their interval, ``sentences`` puts them into words, and ``verdict`` is what the rest of the toolkit asks for.
"""

from analysis.verdict.verdict import Verdict, verdict_of
