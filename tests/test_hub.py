"""Names on the hub without network: refused at once, from the cache where it has them."""

import socket

import pytest
from huggingface_hub import constants

from gmc import hub
from gmc.errors import DataError, UsageError
from gmc.models import load_tokenizer
from gmc.problems.hub import read_hub_rows

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch):
    hub.use_cache_when_unreachable.cache_clear()
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield
    hub.use_cache_when_unreachable.cache_clear()


@pytest.fixture
def server():
    """A port that takes connections and counts them by accepting."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def test_a_server_that_answers_changes_nothing(server, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
    hub.use_cache_when_unreachable()
    server.settimeout(5)
    server.accept()[0].close()
    assert constants.HF_HUB_OFFLINE is False


def test_without_network_only_the_cache_is_used_and_said_once(monkeypatch, caplog):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    hub.use_cache_when_unreachable()
    hub.use_cache_when_unreachable()
    assert constants.HF_HUB_OFFLINE is True
    assert [record.levelname for record in caplog.records if "cannot be reached" in record.message] == ["WARNING"]


def test_behind_a_proxy_the_proxy_knows(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    hub.use_cache_when_unreachable()
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize(
    ("load", "error"),
    [
        (lambda: load_tokenizer("nobody/nothing-7b"), UsageError),
        (lambda: read_hub_rows("nobody/no-data", split=None), DataError),
    ],
)
def test_a_mistyped_name_is_refused_without_a_request(load, error, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(error, match="nobody/no"):
        load()
    assert constants.HF_HUB_OFFLINE is True
