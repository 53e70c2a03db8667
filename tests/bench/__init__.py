"""``make bench``: figures of all areas as one table, with baselines of the same run, and their history.

``areas`` says which benchmarks an area has and how large they are, ``figures`` makes rows of their results,
``history`` keeps them, ``page`` draws it, ``__main__`` puts these together.
"""
