"""What a trace is like: figures, tables and a picture."""
