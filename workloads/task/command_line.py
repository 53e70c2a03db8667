"""The applications' command line: ``argparse``, for it loads in milliseconds, with one-line complaints."""

from __future__ import annotations

import argparse
from typing import NoReturn

from foundation.errors import UsageError


class LineParser(argparse.ArgumentParser):
    """An argument parser whose complaint is an exception with one line."""

    def error(self, message: str) -> NoReturn:
        """Raise what ``argparse`` would print with its usage."""
        raise UsageError(f"{message}; see {self.prog} --help")
