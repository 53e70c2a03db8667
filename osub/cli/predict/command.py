"""``osub predict``: which applications may share a core, and how much memory a job will use."""

from __future__ import annotations

from osub.cli.application import application
from osub.cli.predict.measured_pairs import compare, counters, import_, measure, run
from osub.cli.predict.memory import memory
from osub.cli.predict.models import evaluate, fit, matrix, pair

app = application("Which applications may share a core, and how much memory a job will use.")

app.command()(counters)
app.command()(measure)
app.command("import")(import_)
app.command()(fit)
app.command()(evaluate)
app.command()(compare)
app.command()(pair)
app.command()(matrix)
app.command()(run)
app.command()(memory)
