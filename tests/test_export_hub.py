"""Uploading an export: with a double of the hub's client whose calls must fit the real one, and without network."""

import inspect
import socket
import time
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import LocalTokenNotFoundError
from test_export import export, make_run

from gmc import hub

pytestmark = pytest.mark.unit


class Hub:
    """What a client of the hub was asked to do. Every call is bound to the real method's signature."""

    def __init__(self) -> None:
        self.repositories: list[tuple[str, bool]] = []
        self.files: dict[str, bytes] = {}
        self.refusal: Exception | None = None

    def create_repo(self, *given: Any, **named: Any) -> None:
        call = inspect.signature(HfApi.create_repo).bind(self, *given, **named).arguments
        if self.refusal:
            raise self.refusal
        assert call["exist_ok"]
        self.repositories.append((call["repo_id"], call["private"]))

    def create_commit(self, *given: Any, **named: Any) -> Any:
        call = inspect.signature(HfApi.create_commit).bind(self, *given, **named).arguments
        for operation in call["operations"]:
            assert isinstance(operation, CommitOperationAdd)
            with operation.as_file() as file:
                self.files[operation.path_in_repo] = file.read()
        assert call["commit_message"] == "Policy version 5"
        return type("Commit", (), {"commit_url": f"https://hub/{call['repo_id']}/commit/1"})


@pytest.fixture
def online(monkeypatch):
    """A hub that answers."""
    double = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: double)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "use_cache_when_unreachable", lambda: None)
    monkeypatch.setattr("gmc.export.write.use_cache_when_unreachable", lambda: None)
    return double


def test_an_upload_is_one_commit_of_what_a_folder_would_hold(tmp_path, online):
    run = make_run(tmp_path / "run")
    shown = export(run, "--to", "hf://me/demo")
    assert (shown.exit_code, online.repositories) == (0, [])
    assert "(private if it is made now)" in shown.stderr
    done = export(run, "--to", "hf://me/demo", "--write")
    assert done.exit_code == 0
    assert "https://hub/me/demo/commit/1" in done.stderr
    assert online.repositories == [("me/demo", True)]
    assert export(run, "--to", tmp_path / "out", "--write").exit_code == 0
    folder = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert online.files.keys() == folder.keys()
    assert {name for name in folder if folder[name] != online.files[name]} == {"README.md"}
    card = online.files["README.md"].decode()
    assert "# demo\n" in card
    assert 'name = "me/demo"\n' in card
    export(run, "--to", "hf://me/open", "--write", "--public")
    assert online.repositories[-1] == ("me/open", False)


def test_a_refusal_of_the_hub_is_one_line(tmp_path, online):
    online.refusal = LocalTokenNotFoundError("Token is required\n(and more)")
    result = export(make_run(tmp_path / "run"), "--to", "hf://me/demo", "--write")
    assert result.exit_code == 1
    assert "me/demo: the hub refused: Token is required; log in with `hf auth login`" in " ".join(result.stderr.split())


def test_without_network_it_ends_at_once_and_names_the_way(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    hub.use_cache_when_unreachable.cache_clear()
    run = make_run(tmp_path / "run")
    started = time.monotonic()
    result = export(run, "--to", "hf://me/demo", "--write")
    hub.use_cache_when_unreachable.cache_clear()
    assert result.exit_code == 1
    assert "hf upload me/demo FOLDER" in " ".join(result.stderr.split())
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("to", ["", "hf://demo", "hf://a/b/c", "hf:///demo"])
def test_a_target_that_is_none_is_refused(tmp_path, to):
    result = export(make_run(tmp_path / "run"), *(["--to", to] if to else []))
    assert result.exit_code == 2
    assert "--to" in result.stderr
