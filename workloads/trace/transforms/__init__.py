"""A trace made into another of the same system: parts, mergers, compression, other arrivals and run times."""
