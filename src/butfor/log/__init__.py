"""The log: episodes, the study file, reading and writing."""
