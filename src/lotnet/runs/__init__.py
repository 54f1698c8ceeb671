"""The run directory: its files, and the images that belong to a run."""
