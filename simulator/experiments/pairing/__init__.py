"""The thesis's chapter 4 on measured pairs, and the worth of its predictor on a trace."""
