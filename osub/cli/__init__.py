"""The command line: thin Typer commands, one module a noun."""
