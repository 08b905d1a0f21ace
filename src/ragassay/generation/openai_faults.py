"""What an error of the OpenAI SDK says of the server: whether to ask again, and when."""

from __future__ import annotations

from ragassay.errors import BackendError, BackendUnavailable
from ragassay.generation import openai_wire as wire
from ragassay.generation.servers import Failure

_RETRIED = frozenset({408, 409, 429})
_BUSY = frozenset({408, 429, 503, 504})


def failure_of(
    error: Exception, host: str, *, timeout_seconds: float, api_key_env: str, key: str
) -> Failure:
    """Read an error that a call raised; ``key`` is blotted out of its text."""
    # By name and by attribute: the SDK changed its HTTP library between versions.
    status = getattr(error, "status_code", None)
    names = {kind.__name__ for kind in type(error).__mro__}
    cause = type(error.__cause__).__name__
    if isinstance(status, int):
        return _refused(error, status, host, api_key_env, key)
    if "APIConnectionError" in names and cause in ("ConnectError", "ConnectTimeout"):
        message = f"server {host} cannot be reached: {_scrub(error.__cause__, key)}"
        return Failure(BackendUnavailable(message, retryable=True), again=True)
    if "APITimeoutError" in names:
        return failed(f"no answer within {timeout_seconds:g} s", host, again=True, busy=True)
    if "APIConnectionError" in names:
        return failed(f"the connection broke ({cause})", host, again=True)
    if isinstance(error, ValueError):
        return failed(f"its reply cannot be read: {_scrub(error, key)}", host, again=True)
    return failed(f"{type(error).__name__}: {_scrub(error, key)}", host)


def failed(
    what: str, host: str, *, again: bool = False, wait: float | None = None, busy: bool = False
) -> Failure:
    """Name the server in a failure."""
    return Failure(BackendError(f"server {host}: {what}", retryable=again), again, wait, busy)


def _refused(error: Exception, status: int, host: str, api_key_env: str, key: str) -> Failure:
    if status in (401, 403):  # such replies like to quote the key
        return failed(
            f"HTTP {status}, it does not accept the key in the environment variable {api_key_env}",
            host,
        )
    again = status in _RETRIED or status >= 500
    if getattr(error, "code", None) == "insufficient_quota":  # a 429 that no waiting cures
        again = False
    headers = getattr(getattr(error, "response", None), "headers", {})
    return failed(
        f"HTTP {status}: {_scrub(error, key)}",
        host,
        again=again,
        wait=wire.retry_after(headers),
        busy=status in _BUSY,
    )


def _scrub(error: object, key: str) -> str:
    text = str(error)
    return wire.one_line(text.replace(key, "***") if key else text)
