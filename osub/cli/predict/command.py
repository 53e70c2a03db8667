"""``osub predict``: which applications may share a core, from what was measured of them."""

from __future__ import annotations

from osub.cli.application import application
from osub.cli.predict.measured_pairs import compare, counters, import_, measure, run
from osub.cli.predict.models import evaluate, fit, matrix, pair

app = application("Which applications may share a core: counters, measured pairs, models.")

app.command()(counters)
app.command()(measure)
app.command("import")(import_)
app.command()(fit)
app.command()(evaluate)
app.command()(compare)
app.command()(pair)
app.command()(matrix)
app.command()(run)
