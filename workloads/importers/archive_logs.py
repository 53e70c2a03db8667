"""What the Parallel Workloads Archive has, and where.

The archive publishes no checksums. Those below are of the unpacked files that this project was tested with,
so that it does not matter how a copy was packed; of other files only what they hold is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from foundation.errors import UsageError

ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"


@dataclass(frozen=True, slots=True)
class ArchiveLog:
    """A log of the archive: its folder there, its file's name without ``.swf.gz``, and what is known of it.

    Parameters
    ----------
    folder, name
        Of the page and of the file on it.
    jobs
        Job lines in the file.
    sha256
        Of the unpacked file.
    """

    folder: str
    name: str
    jobs: int | None = None
    sha256: str | None = None

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}.swf.gz"

    def page(self, archive: str = ARCHIVE) -> str:
        """Return the address of the page that describes the log."""
        return f"{archive}/{self.folder}/index.html"

    def address(self, archive: str = ARCHIVE) -> str:
        """Return the address of the file."""
        return f"{archive}/{self.folder}/{self.file}"


_GAIA = "e4587af1ae104f023b49b7f6adcd1c5c1d3be42551848f71962dd2c1d49a78c0"
_KTH = "fba36494c4e4257f72182e8b629ebb0bcb054b3b82851ef957445bd627adcc87"
_CURIE = "b732a04aea71e2f154c8feee580be549d0bba1462bc91ec581944cb3dd6d442d"

LOGS = (
    ArchiveLog("l_unilu_gaia", "UniLu-Gaia-2014-1", 51_987, _GAIA),
    ArchiveLog("l_unilu_gaia", "UniLu-Gaia-2014-2"),
    ArchiveLog("l_kth_sp2", "KTH-SP2-1996-2.1-cln", 28_476, _KTH),
    ArchiveLog("l_cea_curie", "CEA-Curie-2011-2.1-cln", 312_826, _CURIE),
    ArchiveLog("l_kit_fh2", "KIT-FH2-2016-1"),
    ArchiveLog("l_ctc_sp2", "CTC-SP2-1996-3.1-cln"),
    ArchiveLog("l_sdsc_sp2", "SDSC-SP2-1998-4.2-cln"),
    ArchiveLog("l_sdsc_blue", "SDSC-BLUE-2000-4.2-cln"),
    ArchiveLog("l_sdsc_ds", "SDSC-DS-2004-2.1-cln"),
    ArchiveLog("l_hpc2n", "HPC2N-2002-2.2-cln"),
    ArchiveLog("l_lanl_cm5", "LANL-CM5-1994-4.1-cln"),
    ArchiveLog("l_nasa_ipsc", "NASA-iPSC-1993-3.1-cln"),
    ArchiveLog("l_llnl_atlas", "LLNL-Atlas-2006-2.1-cln"),
    ArchiveLog("l_llnl_thunder", "LLNL-Thunder-2007-1.1-cln"),
    ArchiveLog("l_anl_int", "ANL-Intrepid-2009-1"),
    ArchiveLog("l_pik_iplex", "PIK-IPLEX-2009-1"),
    ArchiveLog("l_ricc", "RICC-2010-2"),
    ArchiveLog("l_metacentrum2", "METACENTRUM-2013-3"),
    ArchiveLog("l_ciemat_euler", "CIEMAT-Euler-2008-1"),
    ArchiveLog("l_lpc", "LPC-EGEE-2004-1.2-cln"),
)


def find_log(name: str) -> ArchiveLog:
    """Return the log of that name, an unambiguous part of one, or ``FOLDER/NAME`` of any other.

    Raises
    ------
    UsageError
        No log or several logs are meant.
    """
    wanted = name.removesuffix(".gz").removesuffix(".swf")
    folder, slash, rest = wanted.partition("/")
    if slash:
        if not (folder.isidentifier() and rest.replace("-", "").replace(".", "").replace("_", "").isalnum()):
            raise UsageError(f"{name!r} is no FOLDER/NAME of the archive, such as l_ricc/RICC-2010-2")
        return ArchiveLog(folder, rest)
    exact = [log for log in LOGS if log.name.lower() == wanted.lower()]
    found = exact or [log for log in LOGS if wanted and wanted.lower() in log.name.lower()]
    if len(found) != 1:
        meant = ", ".join(log.name for log in found or LOGS)
        kind = "several logs are named so" if found else "no log of the archive is known by this name"
        raise UsageError(f"{name!r}: {kind}; choose one of {meant}, or give FOLDER/NAME")
    return found[0]
