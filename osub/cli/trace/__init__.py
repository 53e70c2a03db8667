"""``osub trace``: look at job traces and transform them."""
