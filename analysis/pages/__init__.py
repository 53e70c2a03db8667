"""The one design of every page: what stands on it (``content``), and how it becomes HTML (``frame``).

A page is complete in itself and loads nothing. It opens with the verdict, then one picture, then tables; how
and where it was measured stands at its end. Its script (``assets``) draws the figures in the colours of the
scheme, light or dark, sorts and filters the tables, and gives every figure as PNG, SVG and CSV.
"""
