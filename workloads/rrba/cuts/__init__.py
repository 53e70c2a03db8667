"""How a box is cut among ranks: slabs, boxes, pencils, a multipartition. Pure index arithmetic."""
