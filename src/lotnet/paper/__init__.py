"""The LOT paper: its tables, ablations and theorems, and how results compare with them."""
