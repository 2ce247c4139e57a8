"""Ranks of a model: the place of this process among them, and the heartbeat by which a server watches them."""

from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.heartbeat import PERIOD, HeartbeatMonitor, begin_heartbeat, create_heartbeat_memory
from mirlo.runtime.ranks import RankError, heartbeat_seconds, rank_place, require_place, stopped_error

__all__ = [
    "HeartbeatMonitor",
    "PERIOD",
    "RankError",
    "begin_heartbeat",
    "create_heartbeat_memory",
    "heartbeat_seconds",
    "rank_place",
    "require_place",
    "stopped_error",
]

record_extenders(__name__)
