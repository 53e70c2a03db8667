"""The thesis's chapters 5 and 6: data sets, cases, and what is reported of them."""
