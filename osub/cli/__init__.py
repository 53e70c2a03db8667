"""The command line: thin Typer commands. A command is a file, or a folder whose ``command`` is its door."""
