"""Log lines: JSON that a machine reads, nothing that a hostile page could do to a terminal, no floods, no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from durable_crawler import logs

HOSTILE = "http://h/\n\x1b[31m\x07\u202e\u0085\ud800"


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def configured(form: str = "json", level: str = "info", **options: Any) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, form, stream=stream, **options)  # type: ignore[arg-type]
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_the_extra_fields() -> None:
    stream = configured(context={"trace_id": "ab", "span_id": "cd"})
    logging.getLogger("durable_crawler.x").info("took %d", 3, extra={"pages": 3, "host": "h", "ratio": float("nan")})
    (line,) = lines(stream)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "durable_crawler.x",
        "message": "took 3",
        "trace_id": "ab",
        "span_id": "cd",
        "pages": 3,
        "host": "h",
        "ratio": "nan",
    }


def test_the_time_is_rfc_3339_in_utc_with_milliseconds() -> None:
    stream = configured()
    record = logging.LogRecord("x", logging.INFO, "", 0, "m", None, None)
    record.created = 1_700_000_000.0625
    logging.getLogger().handle(record)
    assert lines(stream)[0]["ts"] == "2023-11-14T22:13:20.062Z"


@pytest.mark.parametrize("form", ["json", "text"])
def test_nothing_of_a_hostile_url_reaches_the_terminal(form: str) -> None:
    stream = configured(form)
    logging.getLogger("x").warning("bad: %s", HOSTILE, extra={"url": HOSTILE})
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if form == "json":
        assert lines(stream)[0]["url"] == HOSTILE


def test_structured_fields_stay_structured_and_bounded() -> None:
    stream = configured()
    deep: dict[str, Any] = {}
    deep["self"] = deep
    summary = {"outcome": "finished", "progress": {"done": 3}, "tags": ["a", HOSTILE], "password": "s3cret", 7: None}
    logging.getLogger("x").info("m", extra={"summary": summary, "deep": deep, "many": list(range(10_000))})
    (line,) = lines(stream)
    assert line["summary"] == {
        "outcome": "finished",
        "progress": {"done": 3},
        "tags": ["a", HOSTILE],
        "password": "[redacted]",
        "7": None,
    }
    assert len(stream.getvalue()) < 2 * logs.MESSAGE_MAX


def test_the_trace_of_a_run_is_added_once_it_is_known() -> None:
    stream = configured(context={"a": "b"})
    logs.add_context(trace_id="ab", span_id="cd")
    logging.getLogger("x").info("m")
    assert lines(stream)[0].items() >= {"a": "b", "trace_id": "ab", "span_id": "cd"}.items()


def test_an_extra_field_cannot_replace_what_the_line_is() -> None:
    stream = configured(context={"trace_id": "ab"})
    logging.getLogger("x").info("m", extra={"level": "fatal", "ts": 0, "trace_id": "zz"})
    (line,) = lines(stream)
    assert (line["level"], line["trace_id"]) == ("info", "ab")


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_is_long(form: str) -> None:
    stream = configured(form)
    logging.getLogger("x").info("m" * 100_000, extra={"url": "u" * 100_000})
    assert len(stream.getvalue()) < 3 * logs.MESSAGE_MAX


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_secret_is_not_logged(form: str) -> None:
    stream = configured(form)
    try:
        raise ValueError("http://user:s3cret@h/")
    except ValueError:
        logging.getLogger("x").exception(
            "see http://user:s3cret@h/",
            extra={"Authorization": "s3cret", "api_key": "s3cret", "url": "http://s3cret@h/"},
        )
    assert "s3cret" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_a_long_traceback_keeps_its_end() -> None:
    stream = configured()
    try:
        raise ValueError("x" * 20_000 + "the cause")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert lines(stream)[0]["exception"].endswith("the cause")
    assert len(stream.getvalue()) < 2 * logs.TRACEBACK_MAX


def test_exporters_are_heard_only_when_debugging() -> None:
    logging.getLogger("opentelemetry.some.exporter").setLevel(logging.INFO)
    for level, heard in (("info", 0), ("debug", 1)):
        stream = configured(level=level)
        logging.getLogger("opentelemetry.some.exporter").warning("Transient error")
        assert len(lines(stream)) == heard
    logging.getLogger("opentelemetry.some.exporter").setLevel(logging.NOTSET)


def test_configuring_twice_does_not_log_twice() -> None:
    configured()
    stream = configured()
    logging.getLogger("x").info("once")
    logging.getLogger("x").debug("never")
    assert len(lines(stream)) == 1


class HandClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0


def test_a_repeated_warning_is_logged_once_per_interval_with_how_many_were_left_out() -> None:
    stream = configured()
    clock = HandClock()
    limited = logs.Limited(logging.getLogger("x"), interval=10, clock=clock.monotonic)
    for _ in range(100):
        limited.warning("a", "again %s", "a", host="h")
    limited.warning("b", "another")
    clock.now = 10
    limited.warning("a", "again %s", "a")
    limited.warning("b", "another")
    assert [(line["message"], line.get("suppressed"), line.get("host")) for line in lines(stream)] == [
        ("again a", None, "h"),
        ("another", None, None),
        ("again a", 99, None),
        ("another", None, None),
    ]


def test_the_keys_of_repeated_warnings_are_bounded() -> None:
    configured()
    limited = logs.Limited(logging.getLogger("x"), clock=HandClock().monotonic, max_keys=10)
    for number in range(1000):
        limited.warning(str(number), "m")
    assert len(limited._keys) == 10
