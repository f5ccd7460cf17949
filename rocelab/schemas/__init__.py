"""The published JSON schemas of what rocelab writes, one file per format and version."""
