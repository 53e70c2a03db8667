"""The thesis's physical study (chapter 7) on the cluster at hand, and simulated at its own size.

``plan`` says what is run and how long it takes, ``carry`` runs it on clusters, ``full_size`` simulates
N12C12, ``found`` judges and shows what came of it. This needs several packages at once, so it is above them.
"""
