"""Secrets in options: what is refused in clear text, what passes, and that nothing prints them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import ConfigError
from watersmeet.lookup.table_options import DatabaseOptions
from watersmeet.settings import secrets
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import hide, masked, masked_definition, remember, require_references, resolve
from watersmeet.settings.written_secrets import secrets_in
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream

JAAS = "kafka.sasl.jaas.config"
WHOLE_JAAS = f"'{JAAS}' = '${{env:NAME}}' or '${{file:/path}}'"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

WRITTEN_OUT = [
    ("password", "hunter2"),
    ("password", "${env:U}hunter2"),
    ("password", "${env:U}${env:V}hunter2"),
    ("password", " ${env:U} hunter2"),
    ("kafka.ssl.truststore.password", "${env:U}hunter2"),
    ("kafka.ssl.keystore.key", "hunter2"),
    ("kafka.sasl.oauthbearer.assertion.private.key.passphrase", "hunter2"),
    ("kafka.basic.auth.user.info", "me:hunter2"),
    (JAAS, f'{PLAIN} username="u" password="hunter2";'),
    (JAAS, f'{PLAIN} username="${{env:U}}" password=hunter2;'),
    (JAAS, f'{PLAIN} username="${{env:U}}" password = hunter2;'),
    (JAAS, f"{PLAIN} username='${{env:U}}' password='hunter2';"),
    (JAAS, f'{PLAIN} username="${{env:U}}" password\n=\n"hunter2" ;'),
    (JAAS, f'{PLAIN} username="a\\" b" password="hunter2";'),
    (JAAS, f'{PLAIN} username="u" password="${{env:P}}hunter2";'),
    (JAAS, f'{PLAIN} user_${{env:U}}="hunter2";'),
    (JAAS, f'{PLAIN} user_admin="hunter2";'),
    (JAAS, f"{PLAIN} clientSecret=hunter2;"),
    (JAAS, f'{PLAIN} username="u" password="${{env:P}}"; {PLAIN} password=hunter2;'),
    (JAAS, f'{PLAIN} username="u" password="${{env:P}}" hunter2;'),
    (JAAS, f'{PLAIN} username="u" password="hunter2'),
    (JAAS, f'{PLAIN} username=u//hunter2\n password="${{env:P}}";'),
    (JAAS, f'{PLAIN} /* hunter2 */ password="${{env:P}}";'),
    (JAAS, f'{PLAIN} username="https://u:hunter2@h";'),
    (JAAS, 'password="hunter2"'),
    (JAAS, "hunter2;"[:-1] + " a b"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "http://u:hunter2@h"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "http://hunter2@h"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "http://h/token?client_secret=hunter2"),
    ("kafka.schema.registry.url", "https://h1,https://u:hunter2@h2"),
    ("brokers", "u:hunter2@h:9092"),
    ("brokers", "h:9092, SASL_SSL://u:hunter2@h:9092"),
    ("kafka.bootstrap.servers", "h:9092,hunter2@h:9092"),
    ("path", "s3a://key:hunter2@bucket/folder"),
    ("path", "s3a://key:hunter2/x@bucket/folder"),
    ("path", "s3a://key:hunter2 x'y\"@bucket/folder"),
    ("avro.schema", "https://u:hunter2@h/schema.avsc"),
    ("path", "s3a://key:hunter2?x@bucket/folder"),
    ("path", "s3a://key:x@hunter2@bucket/folder"),
    ("path", "s3a://${env:K}:${env:S}hunter2@bucket/folder"),
    ("path", "key:hunter2@bucket/folder"),
    ("path", "https://account.blob.invalid/c?sv=1&sig=hunter2"),
    ("path", "s3://bucket/folder?access_key=k&secret_key=hunter2"),
    ("url", "jdbc:postgresql://u:hunter2@h/d"),
    ("url", "jdbc:postgresql://u:hun%74er2@h/d"),
    ("url", "jdbc:postgresql://u:1/hunter2@h/d"),
    ("url", "jdbc:postgresql://u:${env:P}hunter2@h/d"),
    ("url", "jdbc:postgresql://h/d?user=u&password=hunter2"),
    ("url", "jdbc:postgresql://h/d?p%61ssword=hunter2"),
    ("url", "jdbc:postgresql://h/d?password=${env:P}hunter2"),
    ("url", "jdbc:postgresql://h/d?sslpassword=hunter2&password=${env:P}"),
    ("url", "jdbc:sqlserver://h;user=u; password = hunter2;"),
    ("url", "jdbc:oracle:thin:u/hunter2@h:1521"),
    ("url", "jdbc:mysql://(host=h,user=u,password=hunter2)/d"),
]


@pytest.mark.parametrize(("name", "value"), WRITTEN_OUT)
def test_a_secret_in_clear_text_is_refused_and_never_printed(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setenv("U", "uu")
    monkeypatch.setenv("V", "vv")
    options = {"topic": "t", name: value}
    with pytest.raises(ConfigError) as raised:
        require_references(options)
    assert raised.value.option == name
    assert raised.value.message == f"option {name} holds a secret written out, which the catalogue would keep"
    assert raised.value.hint
    assert "hunter2" not in str(raised.value)
    assert masked(options) == {"topic": "t", name: "***"}
    assert "hunter2" not in hide(f"login of {value} failed: bad hunter2 of x", options)
    assert "hunter2" in hide("login with hunter2 failed")
    remember(options)
    assert "hunter2" not in hide("login with hunter2 failed")


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text and "${" not in text))
def test_a_password_of_any_characters_in_a_jaas_configuration_is_found(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    for spaces in "", " ", "\n\t":
        value = f'{PLAIN} username="u" password{spaces}={spaces}"{escaped}"{spaces};'
        assert password in secrets_in(JAAS, value)


PASS = [
    ("kafka.ssl.keystore.password", "${env:P}"),
    ("kafka.ssl.keystore.password", "${file:/run/a@b:c}"),
    (JAAS, "${env:JAAS}"),
    (JAAS, f"{PLAIN} ${{env:OPTIONS}};"),
    (JAAS, f'{PLAIN} username="me" password="${{env:P}}";'),
    (JAAS, f"{PLAIN} username=me password = ${{file:/run/secret}} ;"),
    (JAAS, f'{PLAIN}\n  user_admin="${{env:A}}"\n  user_bob="${{env:B}}";'),
    (JAAS, f'{KERBEROS} keyTab="/etc/k.keytab" serviceName="kafka" principal="me@EXAMPLE.ORG";'),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://login.invalid/token?scope=a"),
    ("kafka.sasl.oauthbearer.client.credentials.client.id", "me"),
    ("kafka.client.id", "me"),
    ("kafka.security.protocol", "SASL_SSL"),
    ("brokers", "h:9092,[::1]:9092"),
    ("brokers", "${env:BROKERS}"),
    ("path", "data/a:b@c"),
    ("path", "file:/data/a@b"),
    ("path", "dbfs:/mnt/a:b@c"),
    ("path", "hdfs://name:8020/user/me@example.org"),
    ("path", "abfss://container@account.invalid/folder"),
    ("path", "s3a://${env:K}:${file:/run/secret}@bucket"),
    ("path", "s3://bucket?access_key=${env:K}&secret_key=${env:S}&region=eu"),
    ("url", "jdbc:postgresql://app:${env:PW}@h/d"),
    ("url", "postgresql://app:${env:PW}@h/d"),
    ("url", "jdbc:postgresql://${env:H}:${env:P}/d?user=a%40b"),
    ("url", "jdbc:postgresql://[::1]:5432/d?user=a@b"),
    ("url", "jdbc:postgresql://app@h:5432/d?sslmode=require&sslkey=/k.pem&passfile=/p&options=-c%20a=b"),
    ("url", "jdbc:postgresql://h/d?password=${file:/pw}&sslmode=require"),
    ("url", "jdbc:sqlite:/data/a:b@c.db"),
    ("url", "jdbc:oracle:thin:@//h:1521/d"),
    ("user", "me"),
    ("key", "id, token"),
    ("columns.password", "concat('https://u:p@h', n)"),
    ("json.timestampFormat", "yyyy//MM:dd@HH:mm:ss"),
    ("path", "/data/{a,token=b}/secret=c"),
    (JAAS, 'x required username="u" password="${env:P}" oauth.client.id="a";'),
    ("avro.schema", '{"type": "record", "name": "r", "fields": [{"name": "token", "doc": "a:b@c", "type": "int"}]}'),
]


@pytest.mark.parametrize(("name", "value"), PASS)
def test_a_reference_and_what_is_no_secret_pass(name: str, value: str) -> None:
    require_references({name: value})
    assert masked({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("password", "x", "refer to it: 'password' = '${env:NAME}' or '${file:/path}'"),
        (
            JAAS,
            f"{PLAIN} password=hunter2;",
            f'refer to each secret in it, as in password="${{env:NAME}}", or to all of it: {WHOLE_JAAS}',
        ),
        (
            "url",
            "jdbc:x://u:p@h",
            "leave it out of the url, and add password = '${env:NAME}' or '${file:/path}'",
        ),
        (
            "path",
            "s3a://k:s@b",
            "leave it out of the path: configure credentials where the file system is configured",
        ),
        ("brokers", "u:p@h:1", "write ${env:NAME} or ${file:/path} in its place, and nothing beside it"),
    ],
)
def test_the_hint_says_what_to_write(name: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_references({name: value})
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("p@ss/word", "cannot open s3://k:p%40ss%2Fword@b or s3://k:p%40ss/word@b"),
        ('pass"word', 'near password="pass\\"word"'),
        ("first line\nsecond line", "near 'first line'"),
        ('x required password="p4ssword";', "Invalid username or p4ssword"),
        ("postgresql://u:p4ssword@h/d", "cannot log in with p4ssword"),
    ],
)
def test_resolved_secrets_are_hidden_in_every_form(secret: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setenv("WM_TEST_SECRET", secret)
    assert resolve("${env:WM_TEST_SECRET}") == secret
    shown = hide(said)
    assert "***" in shown
    for part in ("ss/word", "ss%2F", "ss\\", "first", "p4ss"):
        assert part not in shown


def definition(text: str) -> tuple[str, Mapping[str, str]]:
    (statement,) = parse(text)
    assert isinstance(statement, CreateStream)
    return statement.source, statement.options


def test_a_definition_is_printed_without_secrets() -> None:
    source, options = definition(
        f"""CREATE STREAM s (id INT, hunter INT) WITH (connector = 'kafka', topic = 't', -- hunter2, it was
          `kafka.ssl.key.password` /* = */ = "hunter2", 'kafka.ssl.truststore.password' = 12345678,
          '{JAAS}' = '{PLAIN} username="u" password="it\\'s";', brokers = 'h:1')"""
    )
    shown = masked_definition(source, options)
    assert shown == (
        f"""CREATE STREAM s (id INT, hunter INT) WITH (connector = 'kafka', topic = 't', -- ***, it was
          `kafka.ssl.key.password` /* = */ = '***', 'kafka.ssl.truststore.password' = '***',
          '{JAAS}' = '***', brokers = 'h:1')"""
    )


def test_a_definition_without_secrets_is_printed_as_written() -> None:
    source, options = definition(
        "create stream s (id int) with (connector='kafka', 'kafka.ssl.key.password'='${env:P}')"
    )
    assert masked_definition(source, options) == source


def test_a_wrong_value_is_named_without_its_secret() -> None:
    with pytest.raises(ConfigError, match=r"jdbc: option url = '\*\*\*': string should match pattern"):
        parse_options(DatabaseOptions, "jdbc", {"url": "postgresql://u:hunter2@h/d", "table": "t"})


def test_secret_files_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    latin = tmp_path / "latin"
    latin.write_bytes("geheim-ß".encode("latin-1"))
    cases = {
        f"{latin}": f"{latin}, which an option refers to, is not text in UTF-8",
        f"{latin}/x": f"{latin}/x, which an option refers to, cannot be read (Not a directory)",
        f"{tmp_path}": f"{tmp_path}, which an option refers to, cannot be read (Is a directory)",
        "/none/at/all": "/none/at/all, which an option refers to, cannot be read (No such file or directory)",
        "/a\0b": "'/a\\x00b', which an option refers to, is not a path",
    }
    for path, message in cases.items():
        with pytest.raises(ConfigError) as raised:
            resolve(f"${{file:{path}}}")
        assert str(raised.value) == message
        assert raised.value.__cause__ is None


def test_secrets_are_read_as_utf_8_whatever_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes("geheim-ß\n".encode())
    assert resolve(f"${{file:{path}}}") == "geheim-ß"
    os.environb[b"WM_TEST_LATIN"] = b"\xdf"
    try:
        with pytest.raises(ConfigError, match="variable WM_TEST_LATIN, which an option refers to, is not text"):
            resolve("${env:WM_TEST_LATIN}")
    finally:
        del os.environb[b"WM_TEST_LATIN"]
