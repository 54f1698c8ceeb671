"""The paper's tables, ablations and theorems, and measured results beside them."""
