"""The study of malleable jobs (Zojer, Posner, Oezden): windows, runs, what is measured, claims, charts.

``window`` says what a window of jobs is, ``made_windows`` makes those of the paper's systems, ``runs``
simulates them, ``measures`` says what is measured, ``claims`` judges.
"""
