"""The record of slices: its files, what is written into them, what is summed up from them."""
