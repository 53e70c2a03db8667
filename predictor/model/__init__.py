"""Models of what applications lose to each other: fitted on measured pairs, judged, kept as JSON, asked.

What only asks a model (``stored``) needs numpy alone. Fitting and judging need the extra ``predict``.
"""

from __future__ import annotations

from predictor.model.stored_model import Model, read_model, write_model
