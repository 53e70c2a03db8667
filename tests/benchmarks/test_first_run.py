"""README's first command on machines that have never seen this project; prints a line for each machine.

Run it on a calm host, as root, with debootstrap installed::

    OSUB_MACHINES=10 pytest -m benchmark -s tests/benchmarks/test_first_run.py

A machine is a Debian without Python, Slurm or caches: a fresh overlay over a folder that debootstrap made,
with host name, mounts and process ids of its own and the address that Debian gives a host name, 127.0.1.1.
The kernel and the network are the host's. With ``OSUB_AS=user`` a user without root gives the command: it
must name in one line what an administrator installs; root installs just that, and the user repeats it.
``OSUB_FIRST`` is another command than the demo's. ``OSUB_BIND`` lists files and folders of the host that a
machine sees, separated by colons: what its apt and pip need to reach an index, for instance.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.fixtures.machine.root import cached_root
from tests.fixtures.voice import say

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.slurm,
    pytest.mark.timeout(36_000),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]

MACHINES = int(os.environ.get("OSUB_MACHINES", "10"))
COMMAND = os.environ.get("OSUB_FIRST", "scripts/demo --seconds 60 --out ../run")
AS_USER = os.environ.get("OSUB_AS", "root") != "root"
WITHIN_S = 1800
SET_UP = "b=$(date +%s) && sh -c '. scripts/setup.sh' && echo SET UP $(($(date +%s) - b))"
USER = r"""
useradd --create-home stranger && mv /root/osub /home/stranger/ && chown -R stranger: /home/stranger/osub
cd /home/stranger/osub
as_user() {
    setpriv --reuid stranger --regid stranger --init-groups env HOME=/home/stranger USER=stranger sh -c "$1"
}
said=$(as_user scripts/demo 2>&1) && echo 'it did not say what is missing' && exit 1
printf '%s\n' "$said"
[ "$(printf '%s\n' "$said" | wc -l)" = 1 ]
asked=$(expr "$said" : ".*sudo sh -c '\(.*\)'$")
sh -c "$asked" >/dev/null 2>&1
as_user "$FIRST"
"""
PROJECT = Path(__file__).parents[2]
INSIDE = """\
set -eu
root=$1
mount -t overlay overlay -o lowerdir=$2,upperdir=$3/upper,workdir=$3/work "$root"
mount -t proc proc "$root/proc"
for each in sys dev; do mount --rbind /$each "$root/$each"; done
IFS=:
for each in ${OSUB_BIND:-} /etc/resolv.conf; do
    [ -e "$each" ] || continue
    mkdir -p "$root${each%/*}"
    if [ -d "$each" ]; then mkdir -p "$root$each"; else : >>"$root$each"; fi
    mount --bind "$each" "$root$each"
done
unset IFS
hostname fresh
printf '127.0.0.1 localhost\\n127.0.1.1 fresh\\n' >"$root/etc/hosts"
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
exec chroot "$root" /usr/bin/env -i HOME=/root "PATH=$PATH" "FIRST=$5" sh -c "set -e; cd /root/osub; $4
echo done"
"""


def test_first_run_on_fresh_machines() -> None:
    """Each machine sets itself up and runs the command; a failed one fails the benchmark at the end."""
    lower = cached_root(("ca-certificates",))
    failed = []
    for number in range(1, MACHINES + 1):
        with tempfile.TemporaryDirectory(prefix="osub-first-") as folder:
            text, seconds = _first_run(Path(folder), lower)
        well = text.rstrip().endswith("done")
        set_up = re.search(r"SET UP (\d+)", text)
        say(
            f"machine {number}: {'well' if well else 'FAILED'} in {seconds:.0f} s, "
            f"of which set-up {set_up[1] if set_up else '?'} s; load {os.getloadavg()[0]:.1f}\n{text[-6000:]}"
        )
        if not well:
            failed.append(number)
    assert not failed


def _first_run(folder: Path, lower: Path) -> tuple[str, float]:
    for name in ("root", "upper", "work", "upper/root/osub"):
        (folder / name).mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=PROJECT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder / "upper/root/osub")], input=archive.stdout, check=True)
    first = f"{SET_UP} && {COMMAND}"
    command = (USER, first) if AS_USER else (first, "")
    words = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*words, str(folder / "root"), str(lower), str(folder), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{error.stdout!r}\nnot ended within {WITHIN_S} s", WITHIN_S
    return done.stdout, time.monotonic() - began
