"""A simulated run as a RUN directory."""

from __future__ import annotations

from simulator.recording.run_folder import RunTables, job_frame, placement_arrays, tables_of, write_tables

__all__ = ["RunTables", "job_frame", "placement_arrays", "tables_of", "write_tables"]
