"""What people do in interactive jobs: recorded, modelled as busy and idle periods, and embedded in traces."""
