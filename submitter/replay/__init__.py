"""The replay: a clock that submits what was planned, and goes on where a killed one ended."""

from __future__ import annotations

from submitter.replay.begin_run import DrawnUp, draw_up, dry_run, prepare_trace
from submitter.replay.replay_loop import Replay
from submitter.replay.replay_progress import Collect, Look, ReplayProgress, Wish
