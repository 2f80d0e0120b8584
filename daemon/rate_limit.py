"""A bucket of tokens: so many requests at once, and one more each interval."""

from .web_config import RateLimit


class TokenBucket:
    """Counts requests against a limit, which may change at any time."""

    def __init__(self) -> None:
        """Begin without a limit."""
        self._limit: RateLimit | None = None
        self._tokens = 0.0
        self._at_seconds = 0.0

    def take(self, limit: RateLimit, now_seconds: float) -> bool:
        """Take a token, if there is one; another limit begins with a full bucket.

        Args:
            limit: In force; without an interval it is none.
            now_seconds: Of a clock that never goes back.
        """
        if not limit.interval:
            return True
        if limit != self._limit:
            self._limit, self._tokens, self._at_seconds = limit, limit.burst, now_seconds
        came = (now_seconds - self._at_seconds) / limit.interval
        self._tokens = min(float(limit.burst), self._tokens + came)
        self._at_seconds = now_seconds
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
