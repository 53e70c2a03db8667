"""The one rule for files that exist: they stay, unless ``--force`` is said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from foundation.errors import OutputError, UsageError
from foundation.files import refuse_unwritable

Force = Annotated[bool, Option("--force", help="Replace files that exist already.")]


def clear_run(out: Path, force: bool, *, resumable: bool = False) -> None:
    """Remove the finished RUN in ``out`` where it may be replaced; any other folder is left as it is.

    What is refused where it may not be replaced says how it can be. A ``resumable`` one is left to the
    command that resumes it.

    Raises
    ------
    OutputError
        No RUN can be written there. Or there is one that may not be replaced: ``force`` is not given, it is
        not finished, another process writes it, or it cannot be removed.
    TrustError
        It is another user's.
    """
    refuse_unwritable(out)
    if resumable and not force:
        return
    # Tables are slow to import, and a file needs none of it.
    from foundation.records.records_folder import INFO_NAME, refuse_to_replace, remove_run

    refuse_to_replace(out, force=force)
    if (out / INFO_NAME).is_file():
        left = remove_run(out)
        if left:
            raise OutputError(f"{out} holds what no run made ({', '.join(left)}); choose another folder")


def check_free(out: Path | None, force: bool, *, makes_folder: bool = False) -> None:
    """Refuse to replace a file unasked, before any work is done.

    Parameters
    ----------
    out
        The file; None names none.
    force
        Whether it may be replaced.
    makes_folder
        Whether the writer makes the folder where it is missing.

    Raises
    ------
    OutputError
        There is such a file, no folder for it, or one that may not be written to.
    """
    if out is None:
        return
    if out.is_dir():
        raise OutputError(f"{out} is a folder; name a file in it")
    if out.is_file() and not force:  # of a pipe or a device nothing is replaced
        raise OutputError(f"{out} exists already: choose another name, or add --force")
    if not makes_folder and not out.parent.is_dir():
        raise OutputError(f"cannot write {out}: there is no folder {out.parent}")
    refuse_unwritable(out)


def check_apart(first: Path | None, second: Path | None) -> None:
    """Refuse one file for two results: the second would replace the first.

    Raises
    ------
    UsageError
        They are the same.
    """
    if first is not None and second is not None and first.resolve() == second.resolve():
        raise UsageError(f"{first} cannot take both results: choose two files")
