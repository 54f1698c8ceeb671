"""The command `lotnet`."""
