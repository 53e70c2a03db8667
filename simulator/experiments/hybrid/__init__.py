"""The study of Fan et al.: six mechanisms, five mixes of notices, shared cores; every H claim judged."""
