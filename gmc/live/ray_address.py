"""Whether anything answers at the address of a Ray cluster. Ray itself waits a minute for what is not there."""

import socket

from gmc.errors import GmcError, UsageError

PATIENCE_SECONDS = 10.0
FOUND_BY_RAY = ("auto", "local")


def require_answer(address: str) -> None:
    """Raise `UsageError` for what is no address, `GmcError` where nothing takes a connection within `PATIENCE_SECONDS`."""
    if address in FOUND_BY_RAY:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"Ray address {address}: write it as HOST:PORT, or auto for the cluster that this machine belongs to")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()
    except OSError as error:
        raise GmcError(
            f"cannot join Ray at {address}: nothing answers there ({error}); ray status on the cluster says where it is"
        ) from error
