"""How many steps a job makes, from what a step takes; and the loop that makes them."""
