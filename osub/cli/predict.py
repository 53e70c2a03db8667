"""``osub predict``: which applications may share a core, from what was measured of them."""

from __future__ import annotations

from osub.cli.application import application
from osub.cli.predict_compare import compare
from osub.cli.predict_counters import counters
from osub.cli.predict_evaluate import evaluate
from osub.cli.predict_fit import fit
from osub.cli.predict_import import import_
from osub.cli.predict_measure import measure
from osub.cli.predict_pair import matrix, pair
from osub.cli.predict_run import run

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
