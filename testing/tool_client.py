"""Run a command in a fork of `tool_server.py`: `tool_client.py SOCKET MODULE:FUNCTION ARGUMENTS...`."""

# lit starts this some thousand times: to import `socket` and `json` would take longer than all the rest.
import _socket
import marshal
import sys

KEEP = "surrogateescape"
NO_FORKS = "this system has no forks, and so no server of the tools"


def run(
    path: str,
    function: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    files: list[int],
) -> int:
    """Return the exit code of a command with these standard streams; it is negative if a signal ended it."""
    if sys.platform == "win32":
        raise OSError(NO_FORKS)
    module, _, name = function.partition(":")
    command = marshal.dumps((module, name, list(arguments), folder, dict(environment)))
    descriptors = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(path)
        server.sendmsg([len(command).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        server.sendall(command)
        code = server.recv(4, _socket.MSG_WAITALL)
    finally:
        server.close()
    if not code:
        sys.exit("the server of the tools has ended")
    return int.from_bytes(code, "little", signed=True)


if __name__ == "__main__":
    if sys.platform == "win32":
        raise OSError(NO_FORKS)
    import posix

    environment = {key.decode(errors=KEEP): value.decode(errors=KEEP) for key, value in posix.environ.items()}
    code = run(sys.argv[1], sys.argv[2], sys.argv[3:], posix.getcwd(), environment, [0, 1, 2])
    sys.exit(code if code >= 0 else 128 - code)
