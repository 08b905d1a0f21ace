"""Whether an address is this machine."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from ragassay.errors import ConfigError


def is_local(url: str) -> bool:
    """Tell from a URL whether its host is this machine: ``localhost`` or a loopback address.

    Names are not looked up: a name that happens to lead here does not count.

    Examples
    --------
    >>> is_local("http://127.0.0.1:8000/ask"), is_local("http://db.example.org")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def checked_url(option: str, url: str) -> str:
    """Return a URL of a service that can be asked.

    Raises
    ------
    ConfigError
        It is no http(s) URL, or holds a user's name or password.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{option} must be a URL such as http://localhost:8000/..., got {url!r}")
    if parts.username or parts.password:
        raise ConfigError(
            f"{option} holds a user name or password; name an environment variable in a header "
            "instead ({env:NAME})"
        )
    return url
