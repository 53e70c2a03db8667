"""``osub predict``: which applications may share a core, from what was measured of them."""

from __future__ import annotations

from osub.cli.application import application
from osub.cli.predict.compare_pairs import compare
from osub.cli.predict.count import counters
from osub.cli.predict.fit_and_evaluate import evaluate, fit
from osub.cli.predict.import_pairs import import_
from osub.cli.predict.measure_pairs import measure
from osub.cli.predict.pair_and_matrix import matrix, pair
from osub.cli.predict.run_application import run

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
