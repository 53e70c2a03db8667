"""Who owns a slice, worked out only where something has changed, and how long slices are."""
