"""Does a cluster do what it has to? A run held against thresholds: what passes, what does not, and by how much."""
