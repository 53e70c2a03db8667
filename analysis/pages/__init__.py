"""The one design of every page: its content (``page_content``), and how it becomes HTML (``page_frame``).

A page is complete in itself and loads nothing. It opens with the verdict, then one picture, then tables; how
and where it was measured come last. Its script (``assets``) draws the figures in the colours of the
scheme, light or dark, sorts and filters the tables, and gives every figure as PNG, SVG and CSV.
"""
