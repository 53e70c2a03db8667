"""Whether a result could be written where it is wanted: asked before the work, not after it.

Nothing is made and nothing is opened. A disk that is full, or a right that is taken away later, is found by
the writer. Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from foundation.errors import OutputError


def refuse_unwritable(path: Path) -> None:
    """Fail if no file, or no new folder, could take its place at ``path``; folders that miss may be made.

    What is neither a plain file nor a folder, such as ``/dev/null``, is written to where it is.

    Raises
    ------
    OutputError
        The folder that it would be in, or the last one on the way that exists, may not be written to; or
        there is none.
    """
    try:
        kind = path.stat().st_mode
    except OSError:
        kind = stat.S_IFREG
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        refuse_unwritable_folder(path.absolute().parent, path)
    elif not os.access(path, os.W_OK):
        raise OutputError(f"cannot write {path}: you may not write to it")


def refuse_unwritable_folder(folder: Path, wanted: Path | None = None) -> None:
    """Fail if nothing could be written in ``folder``, or if it could not be made.

    Parameters
    ----------
    folder
        The folder.
    wanted
        What is to be written, for the message; None: the folder itself.

    Raises
    ------
    OutputError
        It, or the last folder on the way that exists, may not be written to; or there is none.
    """
    what = folder if wanted is None else wanted
    try:
        str(what).encode()
    except UnicodeEncodeError as error:
        raise OutputError(f"cannot write {what}: the name is no text (UTF-8); choose another one") from error
    whole = folder.absolute()
    for place in (whole, *whole.parents):
        if place.is_dir():
            if not os.access(place, os.W_OK | os.X_OK):
                why = "is on a read-only file system" if _is_read_only(place) else "may not be written to"
                raise OutputError(f"cannot write {what}: {place} {why}; choose another place")
            return
        if os.path.lexists(place):
            kind = "a link that leads nowhere" if place.is_symlink() else "no folder"
            raise OutputError(f"cannot write {what}: {place} is {kind}")


def _is_read_only(place: Path) -> bool:
    return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
