"""Is the Hugging Face hub within reach? Asked once, so that without network a mistyped name fails at once, without retries."""

import logging
import os
import socket
import sys
from functools import cache
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""How long a connection may take to open."""


def is_offline() -> bool:
    """Whether the hub's client looks into its cache alone."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@cache
def use_cache_when_unreachable() -> None:
    """Let the hub's client look into its cache alone when its server cannot be reached. Call before anything is fetched.

    Behind a proxy nothing is tried, since the proxy alone knows.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    proxies = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    if constants.HF_HUB_OFFLINE or address.hostname is None or any(os.environ.get(name) for name in proxies):
        return
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname, port), timeout=PATIENCE_SECONDS).close()
    except OSError as error:
        log.warning("%s cannot be reached (%s): only what is in the cache can be used", constants.ENDPOINT, error)
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # which keeps a copy from when it was imported
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True
