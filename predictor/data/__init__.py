"""The measured pairs that come with osub, and the model fitted on them; ``about.json`` says where."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
MODEL = FOLDER / "model.json"
