"""Whose a file or folder is, and whether anybody else may write to it."""

from __future__ import annotations

import grp
import os
import pwd
import stat

ROOT = 0
Owners = frozenset[int]
"""Ids of users who are believed besides root and the user himself."""


def is_closed_to_others(found: os.stat_result, also: Owners = frozenset()) -> bool:
    """Whether a file or folder belongs to root, the user or ``also``, and nobody else may write to it."""
    return is_known_owner(found, also) and not others_write(found)


def is_known_owner(found: os.stat_result, also: Owners = frozenset()) -> bool:
    """Whether a file or folder belongs to root, the user or one of ``also``."""
    return found.st_uid in (ROOT, os.geteuid()) or found.st_uid in also


def others_write(found: os.stat_result) -> bool:
    """Whether anybody but its owner may write to a file or folder; access control lists show in the group."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def user_name(uid: int) -> str:
    """Return a user's name for a message, or the number of one without an account."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"


def _is_own_group(group: int) -> bool:
    """Whether a group is the one that a user has to himself, as many distributions make it; never root's."""
    me = os.geteuid()
    if me == ROOT:
        return False
    try:
        user, found = pwd.getpwuid(me), grp.getgrgid(group)
    except KeyError:
        return False
    alone = not set(found.gr_mem) - {user.pw_name}
    return user.pw_gid == group and found.gr_name == user.pw_name and alone
