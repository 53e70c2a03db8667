"""Traces and busy periods that are drawn: from models, or to what was measured."""
