"""What a trained network looks like inside: functions from a model to numbers and pictures."""
