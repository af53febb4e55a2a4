"""Secrets in clear text are refused and hidden, wherever in an option they stand; references pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import ConfigError
from watersmeet.settings.secrets import hide, masked, require_references, resolve

JAAS = "kafka.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CLEAR = [
    (JAAS, f'{PLAIN} username="${{env:U}}" password=hunter2;', "hunter2"),
    (JAAS, f'{PLAIN} username="${{env:U}}" password = hunter2;', "hunter2"),
    (JAAS, f'{PLAIN} username="${{env:U}}" password="hun ter2" ;', "hun ter2"),
    (JAAS, f"{PLAIN} username='${{env:U}}' password='hunter2';", "hunter2"),
    (JAAS, f'{PLAIN} username="${{env:U}}" password="${{env:P}}" user_${{env:U}}="pw123";', "pw123"),
    (JAAS, f'{PLAIN} username="${{env:U}}" password="${{env:P}}hunter2";', "hunter2"),
    (JAAS, f'{PLAIN} username="a" clientSecret="hunter2";', "hunter2"),
    (JAAS, f'{PLAIN}\n  username="a"\n  password\n=\n"hun\\"ter2";', 'hun\\"ter2'),
    (JAAS, "password hunter2 {", "hunter2"),
    ("kafka.ssl.truststore.password", "${env:U}hunter2", "hunter2"),
    ("kafka.ssl.truststore.password", "hunter2", "hunter2"),
    ("kafka.ssl.keystore.key", "-----BEGIN-----", "BEGIN"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "http://u:hunter2@h/token", "hunter2"),
    ("brokers", "app:hunter2@host:9092", "hunter2"),
    ("path", "s3a://key:hunter2@bucket/folder", "hunter2"),
    ("path", "s3a://key:hun/ter2@bucket/folder", "hun/ter2"),
    ("path", "abfss://c@a.dfs.core.windows.net/x?sv=1&sig=hunter2", "hunter2"),
    ("path", "s3a://${env:KEY}:x${env:PW}@bucket", "x${env:PW}"),
    ("url", "jdbc:postgresql://app:hunter2@db/shop", "hunter2"),
    ("url", "jdbc:postgresql://app:12345@db/shop", "12345"),
    ("url", "jdbc:postgresql://db/shop?user=app&password=hunter2", "hunter2"),
    ("url", "jdbc:sqlserver://db;user=app;password=hunter2", "hunter2"),
    ("url", "jdbc:oracle:thin:scott/hunter2@//db/shop", "hunter2"),
    ("avro.schema.registry.url", "https://u:hunter2@registry", "hunter2"),
]
HARMLESS = [
    (JAAS, "${file:/run/jaas.conf}"),
    (JAAS, f'{PLAIN} username="app" password="${{env:P}}";'),
    (JAAS, f'{PLAIN} username="app" password = ${{file:/run/p=w;d}} ;'),
    (JAAS, f'{PLAIN} serviceName="kafka" useKeyTab=true keyTab="/etc/k.keytab" principal="k@EXAMPLE.COM";'),
    ("kafka.ssl.truststore.password", "${file:/run/secret}"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "http://h:8080/token"),
    ("brokers", "a:9092,b:9092"),
    ("path", "s3a://bucket/folder@2026:1"),
    ("path", "/data/a:b@c"),
    ("path", "hdfs://name:8020/folder@x"),
    ("path", "s3a://${env:KEY}:${env:PW}@bucket"),
    ("url", "jdbc:postgresql://app@db:5432/shop?sslmode=require"),
    ("url", "jdbc:postgresql://app:${env:PW}@db/shop"),
    ("url", "jdbc:postgresql://db/shop?password=${file:/pw@x&y}&sslmode=require"),
    ("columns.password", "concat('a', n)"),
]


@pytest.mark.parametrize(("name", "value", "secret"), CLEAR)
def test_a_secret_in_clear_text_is_refused_and_hidden(name: str, value: str, secret: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_references({name: value})
    assert raised.value.option == name
    assert secret not in str(raised.value)
    assert "${env:NAME}" in str(raised.value)
    assert secret not in masked({name: value})[name]
    assert secret not in hide(f"the client said {value}", {name: value})


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_references_and_what_is_no_secret_pass(name: str, value: str) -> None:
    require_references({name: value})
    assert masked({name: value}) == {name: value}


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_is_no_text_is_one_sentence(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"secret, which an option refers to, (is not UTF-8 text|cannot be read)"):
        resolve(f"${{file:{path}}}")
