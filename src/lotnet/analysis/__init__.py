"""Analyses of trained networks: functions from networks to numbers and plots."""
