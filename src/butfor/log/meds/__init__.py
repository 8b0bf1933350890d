"""Logs of events in the Medical Event Data Standard (MEDS)."""
