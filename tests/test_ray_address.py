"""Where nothing answers, Ray is not asked, which would wait for a minute."""

import socket
import time

import pytest

from gmc.errors import GmcError, UsageError
from gmc.live import ray_address
from gmc.live.ray_address import require_answer

pytestmark = pytest.mark.unit


def test_a_dead_address_is_one_line_at_once():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(GmcError, match=rf"cannot join Ray at 127\.0\.0\.1:{port}: nothing answers there") as caught:
            require_answer(f"127.0.0.1:{port}")
        assert time.monotonic() - started < 5
        assert "\n" not in str(caught.value)


def test_an_address_that_swallows_packets_is_given_up_in_time(monkeypatch):
    def silent(address, timeout):
        raise TimeoutError(f"timed out after {timeout:g} s")

    monkeypatch.setattr(ray_address.socket, "create_connection", silent)
    with pytest.raises(GmcError, match="timed out after 10 s"):
        require_answer("ray://10.255.255.1:10001")


def test_a_listening_address_and_what_ray_finds_itself_are_left_to_ray():
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_answer(f"127.0.0.1:{server.getsockname()[1]}")
    require_answer("auto")


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:port", "head:99999", ""])
def test_no_address_is_wrong_usage(address):
    with pytest.raises(UsageError, match="write it as HOST:PORT"):
        require_answer(address)
