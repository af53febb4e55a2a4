"""The server of the live page: who may read it, and that it only reads."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from tests.monitoring.statuses import CHAIN, counters_of_chain, plan_of, status_after
from watersmeet.errors import ConfigError
from watersmeet.monitoring.access import TOKEN_VARIABLE, Address, parse_address
from watersmeet.monitoring.server import LivePage
from watersmeet.runtime.history import Failure

TOKEN = "a-token-of-many-characters"


@contextmanager
def page(address: str = "127.0.0.1:0") -> Iterator[LivePage]:
    status = status_after(plan_of(CHAIN), [(5, counters_of_chain(100))], now=10)
    with LivePage(lambda: [status], parse_address(address)) as opened:
        yield opened


def ask(page: LivePage, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    parts = urlsplit(page.url)
    assert parts.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def opened() -> Iterator[LivePage]:
    with page() as found:
        yield found


def test_the_page_and_its_files_are_served_with_a_strict_policy(opened: LivePage) -> None:
    code, headers, html = ask(opened, "/")
    assert (code, headers.get_content_type()) == (200, "text/html")
    for name in re.findall(r'(?:src|href)="([\w.]+\.(?:js|css))"', html.decode()):
        assert ask(opened, f"/{name}")[0] == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Access-Control-Allow-Origin" not in headers


def test_the_page_loads_nothing_from_elsewhere_and_every_file_is_served(opened: LivePage) -> None:
    folder = files("watersmeet.monitoring") / "page"
    for each in folder.iterdir():
        text = each.read_text()
        assert not re.search(r"(?:https?:)?//[a-z]+\.", text.replace("http://www.w3.org/2000/svg", "")), each.name
        assert "innerHTML" not in text
        assert ask(opened, "/" if each.name == "index.html" else f"/{each.name}")[0] == 200


def test_json_and_metrics_tell_of_the_query(opened: LivePage) -> None:
    assert json.loads(ask(opened, "/status.json")[2])["queries"][0]["name"] == "q"
    code, headers, text = ask(opened, "/metrics")
    assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'watersmeet_rows_late_total{input="o",operator="join_1",query="q"} 2.0' in text


def test_an_error_that_names_a_file_in_no_utf8_is_shown() -> None:
    failure = Failure(10.0, "OSError", f"cannot read {os.fsdecode(b'/data/caf%c' % 0xE9)}", went_on=True)
    status = status_after(plan_of(CHAIN), [], now=10, failures=(failure,))
    with LivePage(lambda: [status], Address(port=0)) as opened:
        code, headers, text = ask(opened, "/status.json")
    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text)["queries"][0]["failures"][0]["message"] == failure.message


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(opened: LivePage, method: str) -> None:
    for path in ("/", "/status.json", "/metrics"):
        assert ask(opened, path, method)[0] == 405


@pytest.mark.parametrize("path", ["/../server.py", "/page/index.html", "/%2e%2e/server.py", "/nothing"])
def test_no_other_file_can_be_had(opened: LivePage, path: str) -> None:
    assert ask(opened, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4140", "127.0.0.1.evil.example", ""])
def test_a_foreign_name_for_this_machine_is_refused(opened: LivePage, host: str) -> None:
    code, headers, text = ask(opened, "/status.json", Host=host)
    assert code == 421
    assert b"queries" not in text
    assert "Content-Security-Policy" in headers


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:4140"])
def test_names_of_this_machine_are_taken(opened: LivePage, host: str) -> None:
    assert ask(opened, "/status.json", Host=host)[0] == 200


def test_elsewhere_a_token_is_needed() -> None:
    with page("0.0.0.0:0") as opened:
        token = urlsplit(opened.url).query.removeprefix("token=")
        assert len(token) >= 32
        for path in ("/", "/status.json", "/metrics", "/?token=wrong", f"/status.json?token={token}"):
            assert ask(opened, path)[0] == 401, path
        assert ask(opened, "/metrics", Authorization="Bearer wrong")[0] == 401
        assert ask(opened, "/metrics", Authorization=f"Basic {token}")[0] == 401
        assert ask(opened, "/metrics", Authorization=f"Bearer {token}")[0] == 200
        code, headers, _ = ask(opened, f"/?token={token}")
        assert (code, headers["Location"]) == (303, "/")
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=strict" in headers["Set-Cookie"]
        assert ask(opened, "/status.json", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200


def test_a_token_of_the_environment_counts_on_loopback_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with page() as opened:
        assert opened.url.endswith(f"?token={TOKEN}")
        assert ask(opened, "/status.json")[0] == 401
        assert ask(opened, "/status.json", Authorization=f"Bearer {TOKEN}")[0] == 200
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match="fewer than 16 characters"), page():
        pass


def test_the_url_carries_a_token_of_any_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "base64+of/openssl&co#100%25=="
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with page() as opened:
        code, headers, _ = ask(opened, f"/?{urlsplit(opened.url).query}")
        assert code == 303
        assert ask(opened, "/status.json", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
        assert ask(opened, "/status.json", Authorization=f"Bearer {token}")[0] == 200


def test_a_port_in_use_is_left_for_a_free_one_unless_it_was_asked_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with LivePage(list, Address(port=port)) as opened:
            assert urlsplit(opened.url).port != port
            assert ask(opened, "/status.json")[0] == 200
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}"), page(f"127.0.0.1:{port}"):
            pass


def test_a_page_that_was_stopped_listens_no_more() -> None:
    with page() as opened:
        assert ask(opened, "/")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(opened, "/")


@pytest.mark.parametrize("text", ["", "host", "1.2.3.4:", ":80", "a b:80", "host:99999", "http://host:80", "::1:80"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no address to listen on"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("[::1]:80") == Address("::1", 80, may_move=False)
    assert [parse_address(each).is_loopback for each in ("127.0.0.2:1", "localhost:1", "0.0.0.0:1", "db:1")] == [
        True,
        True,
        False,
        False,
    ]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match="not installed: uvicorn") as error, page():
        pass
    assert error.value.hint == "pip install '.[ui]' in a clone of Watersmeet"
