"""Malleable strategies over EASY (Zojer, Posner, Oezden)."""
