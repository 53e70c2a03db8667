"""Files and folders that can be trusted: no other user could create them or can change them.

A daemon that runs as root must not be sent elsewhere by a link, and must not read what another user wrote.
So a path is opened folder by folder from ``/``, without following links, and every folder on the way is
looked at through the descriptor that is then used. Rules, for the effective user:

* A folder on the way belongs to root or to the user, and no other user may write to it; or it is sticky, as
  ``/tmp`` is: only its owner can rename or remove an entry of a sticky folder.
* A link on the way is followed if it belongs to root or to the user and is in a folder that no other user
  may write to. The last component is never a link.
* A folder to keep things in belongs to the user, and no other user may write to it.
* A file is a plain file of root's or of the user's own that no other user may write to. It is reached by its
  name in an open folder, and replaced as a whole (``foundation.whole_file``).

The members of a group are others, but for the group that a user has to himself. Standard library only: the
guardian of an agent uses this package too.
"""

from foundation.trust.trust_checks import (
    DIRECTORY,
    behind_links,
    folder_of,
    is_closed_to_others,
    make_folder,
    names_in,
    open_below,
    open_entry,
    open_folder,
    open_own,
    open_parent,
    place_of,
    read_file,
    read_trusted,
    refuse_for_root,
    refuse_others,
    user_name,
)

__all__ = [
    "DIRECTORY",
    "behind_links",
    "folder_of",
    "is_closed_to_others",
    "make_folder",
    "names_in",
    "open_below",
    "open_entry",
    "open_folder",
    "open_own",
    "open_parent",
    "place_of",
    "read_file",
    "read_trusted",
    "refuse_for_root",
    "refuse_others",
    "user_name",
]
