"""Studies of published claims, and the thesis's experiments again: ``claim_study`` runs them all."""
