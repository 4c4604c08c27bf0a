"""Kubernetes' times: RFC 3339 in UTC with whole seconds, and tolerant reading of what kubelets report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def parse(text: object) -> datetime | None:
    """Read a time; ``None`` for null, for Go's zero time (year 1), the epoch, and anything unreadable."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    try:
        time = time.astimezone(UTC)
    except OverflowError:  # year 1 with an offset
        return None
    return time if time.year > 1970 else None


def text(time: datetime) -> str:
    """Write a time as ``metav1.Time`` does."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def later(time: datetime, seconds: float) -> datetime:
    """A time some seconds later; the last one there is where that would be beyond it."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=time.tzinfo)


def ceil(time: datetime) -> datetime:
    """The next whole second: a stored time must never be earlier than the one that was meant."""
    whole = time.replace(microsecond=0)
    return whole if whole == time else whole + timedelta(seconds=1)
