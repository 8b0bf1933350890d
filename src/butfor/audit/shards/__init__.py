"""Audits of logs too large for memory, file by file, on one machine or many."""

from butfor.audit.shards.run import audit_shards
from butfor.audit.shards.workers import Cluster, Threads

__all__ = ["Cluster", "Threads", "audit_shards"]
