"""On-demand, rigid and malleable jobs on whole nodes (Fan et al.), in a compiled loop of its own.

``state`` says what the kernels read and write; read it first. ``loop`` lets things happen, in the order that
is there; ``demand`` is what an on-demand job does to the others, ``backfill`` is EASY between.
``generate`` draws what a plain trace does not tell; ``pool`` makes of it what any simulated pool is.
"""
