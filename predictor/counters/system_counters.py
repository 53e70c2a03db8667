"""Counters of the operating system (getrusage(2)): every host has them, and they tell nothing of caches."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from foundation.errors import HostError
from foundation.one_line import one_line
from predictor.counters.counter_source import Count
from predictor.dataset import Source


class SystemCounters:
    """CPU time, faults, switches and blocks of a command and all that it waited for, per second."""

    source = Source.OS

    def missing(self) -> str | None:
        """Return None: every host has them."""
        return None

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command and return what the kernel accounted to it."""
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise HostError(f"cannot start {one_line(command[0])}: it is not there, or is no program")
        begin_s = time.monotonic()
        try:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(environment)
            )
        except OSError as error:
            raise HostError(f"cannot start {one_line(command[0])}: {error.strerror}") from error
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = max(time.monotonic() - begin_s, 1e-6)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        if code != 0:
            how = f"ended with code {code}" if code > 0 else f"was killed by signal {-code}"
            raise HostError(f"{one_line(' '.join(command), 80)} {how}")
        values = {
            "cpu_user": usage.ru_utime,
            "cpu_system": usage.ru_stime,
            "faults_minor": usage.ru_minflt,
            "faults_major": usage.ru_majflt,
            "switches_voluntary": usage.ru_nvcsw,
            "switches_involuntary": usage.ru_nivcsw,
            "blocks_in": usage.ru_inblock,
            "blocks_out": usage.ru_oublock,
        }
        return [Count(name, "second", value / seconds) for name, value in values.items()]
