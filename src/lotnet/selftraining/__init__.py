"""Self-training: pseudo-labels from a teacher, a student trained on them."""
