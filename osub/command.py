"""Entry of ``osub``: the command line, or one line where an installation leaves it out."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are imported nothing is to be cleaned up
    try:
        from osub.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {
            "osub",
            "foundation",
            "analysis",
            "workloads",
            "submitter",
            "gangd",
            "simulator",
        }:
            raise
        print(
            f"osub: this installation is for gangd or gang-agent alone ({error.name} is missing): "
            "pip install 'osub[all]'",
            file=sys.stderr,
        )
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
