"""The command line: thin Typer commands. A command is a file, or a folder with a module ``command``."""
