"""Where compiled kernels may be kept: numba's caches are pickles, and who writes one acts as who loads it."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from foundation.errors import TrustError
from foundation.trust import make_folder


@functools.cache
def usable_cache(folder: Path) -> bool:
    """Whether compiled kernels may be kept in a folder, which is made where it is missing.

    Not in one that another user could have put there, or may write to: then a warning says so, once, and
    kernels are compiled anew each time.
    """
    try:
        fd, _ = make_folder(folder, 0o700)
    except TrustError as error:
        logging.getLogger(__name__).warning("kernels are compiled anew each time, for their cache: %s", error)
        return False
    except (OSError, RuntimeError):
        return False
    os.close(fd)
    return os.access(folder, os.W_OK)
