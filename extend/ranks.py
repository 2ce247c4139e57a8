"""Processes of one model: the place of this one among them, their heartbeat, and memory that they share."""

from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.former_names import former_names
from mirlo.runtime.heartbeat import (
    PERIOD,
    HeartbeatMonitor,
    begin_heartbeat,
    create_heartbeat_memory,
    own_heartbeat,
)
from mirlo.runtime.private_folders import make_private, unsafe_folder
from mirlo.runtime.processes import (
    connect_locally,
    create_shared_memory,
    has_local_groups,
    listen_locally,
    map_shared_memory,
    peer_of,
    receive_some,
    send_message,
)
from mirlo.runtime.rank_place import (
    TIMEOUT,
    RankError,
    RankPlace,
    heartbeat_seconds,
    rank_place,
    require_place,
    stopped_error,
    timeout_seconds,
)
from mirlo.runtime.system import effective_user

__all__ = [
    "HeartbeatMonitor",
    "PERIOD",
    "RankError",
    "RankPlace",
    "TIMEOUT",
    "begin_heartbeat",
    "connect_locally",
    "create_heartbeat_memory",
    "create_shared_memory",
    "effective_user",
    "has_local_groups",
    "heartbeat_seconds",
    "listen_locally",
    "make_private",
    "map_shared_memory",
    "own_heartbeat",
    "peer_of",
    "rank_place",
    "receive_some",
    "require_place",
    "send_message",
    "stopped_error",
    "timeout_seconds",
    "unsafe_folder",
]

__getattr__ = former_names(__name__, {"MOST_RANKS": "mirlo.extend.options:MOST_RANKS"})

record_extenders(__name__)
