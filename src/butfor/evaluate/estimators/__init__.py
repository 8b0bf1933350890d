"""Estimators of a policy's value: functions of what is summed over episodes."""
