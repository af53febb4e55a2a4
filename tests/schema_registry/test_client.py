"""The client, against a real registry."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.support.guarded_server import guarded
from tests.support.prometheus import free_port
from tests.support.schema_registry import RegistryServer
from watersmeet.connectors.formats.registry_options import registry_of, registry_options, required_version
from watersmeet.connectors.kafka.options import options_of
from watersmeet.errors import ConfigError, ConnectorError, OutageError
from watersmeet.records.schema_registry.client import Schema, SchemaRegistry, SchemaType, UnknownSchemaError
from watersmeet.settings.secrets import require_references

ROW = '{"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}'


def new_subject() -> str:
    return f"s{uuid.uuid4().hex}-value"


def test_schemas_by_number_and_by_version(registry: RegistryServer) -> None:
    client, subject = SchemaRegistry((registry.url,)), new_subject()
    assert client.version(subject, "latest") is None
    number = client.register(subject, Schema(SchemaType.AVRO, ROW))
    assert client.register(subject, Schema(SchemaType.AVRO, ROW)) == number
    assert client.schema(number) == Schema(SchemaType.AVRO, ROW)
    found = client.version(subject, "latest")
    assert found is not None
    assert (found.id, found.version, found.schema.text) == (number, 1, ROW)
    assert client.version(subject, "2") is None
    with pytest.raises(UnknownSchemaError, match="the registry has no schema 999999"):
        client.schema(999_999)


def test_references_come_with_a_schema(registry: RegistryServer) -> None:
    inner, middle, outer = new_subject(), new_subject(), new_subject()
    texts = [
        'syntax = "proto3"; package a; message A { int32 x = 1; }',
        'syntax = "proto3"; package b; import "deep/a.proto"; message B { a.A a = 1; }',
        'syntax = "proto3"; package c; import "b.proto"; message C { b.B b = 1; }',
    ]
    registry.register(inner, texts[0], "PROTOBUF")
    registry.register(middle, texts[1], "PROTOBUF", [{"name": "deep/a.proto", "subject": inner, "version": 1}])
    number = registry.register(outer, texts[2], "PROTOBUF", [{"name": "b.proto", "subject": middle, "version": 1}])
    found = SchemaRegistry((registry.url,)).schema(number)
    assert found.references == (("deep/a.proto", texts[0]), ("b.proto", texts[1]))
    from watersmeet.records.schema_registry.proto_schemas import compiled

    assert list(compiled(found).message_types_by_name) == ["C"]


def test_an_incompatible_schema_is_refused_in_the_registrys_words(registry: RegistryServer) -> None:
    client, subject = SchemaRegistry((registry.url,)), new_subject()
    client.register(subject, Schema(SchemaType.AVRO, ROW))
    registry.ask(f"/config/{subject}", {"compatibility": "BACKWARD"}, "PUT")
    with pytest.raises(
        ConnectorError, match=r"does not take the schema: .*not compatible with writer type: INT"
    ) as raised:
        client.register(subject, Schema(SchemaType.AVRO, ROW.replace('"int"', '"string"')))
    assert not isinstance(raised.value, OutageError)
    with pytest.raises(ConnectorError, match="does not take the schema"):
        client.register(subject, Schema(SchemaType.AVRO, "{nope"))


def test_a_registry_that_is_away_is_an_outage_and_another_address_takes_over(registry: RegistryServer) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(OutageError) as raised:
        SchemaRegistry((nobody,)).schema(1)
    assert str(raised.value) == (
        f"the schema registry at {nobody} cannot be reached\n{nobody}: Connection refused\n"
        "hint: is it running, and is registry.url right?"
    )
    assert raised.value.waits_for == f"the schema registry at {nobody}: Connection refused"
    subject = new_subject()
    assert SchemaRegistry((nobody, registry.url)).register(subject, Schema(SchemaType.AVRO, ROW)) > 0


def test_what_is_no_registry(registry: RegistryServer) -> None:
    root = registry.url.removesuffix("/apis/ccompat/v7")
    with pytest.raises(ConnectorError, match="does not answer as a schema registry") as raised:
        SchemaRegistry((f"{root}/nowhere",)).schema(1)
    assert not isinstance(raised.value, OutageError)
    assert "Apicurio's is /apis/ccompat/v7" in str(raised.value)


def test_tls_and_who_asks(registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = new_subject()
    registry.register(subject, ROW)
    monkeypatch.setenv("REGISTRY_PASSWORD", "s3cret-word")
    with guarded(registry.url, "Basic YWRhOnMzY3JldC13b3Jk", tmp_path) as (url, certificate):
        given = {
            "registry.url": url,
            "registry.subject": subject,
            "registry.ca": str(certificate),
            "registry.user": "ada",
            "registry.password": "${env:REGISTRY_PASSWORD}",
        }
        require_references(given)
        assert required_version(registry_options(given)).schema.text == ROW
        assert "s3cret" not in repr(registry_of(registry_options(given)))
        without_user = {
            name: text for name, text in given.items() if name not in ("registry.user", "registry.password")
        }
        with pytest.raises(ConnectorError, match=r"refuses access: who are you\?"):
            required_version(registry_options(without_user))
        without_ca = {name: text for name, text in given.items() if name != "registry.ca"}
        with pytest.raises(ConnectorError, match=r"is not trusted: self-signed certificate\nhint: registry.ca names"):
            required_version(registry_options(without_ca))
        # who is authorised here is not made known to another server
        moved = registry_of(registry_options(given | {"registry.url": f"{url}/moved"}))
        with pytest.raises(ConnectorError, match="HTTP status 302"):
            moved.version(subject, "latest")


def test_a_token(registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "tok-12345")
    with guarded(registry.url, "Bearer tok-12345", tmp_path) as (url, certificate):
        given = {"registry.url": url, "registry.subject": "x", "registry.ca": str(certificate)}
        found = registry_of(registry_options(given | {"registry.token": "${env:REGISTRY_TOKEN}"}))
        assert found.version(new_subject(), "latest") is None


KAFKA = {"topic": "orders", "brokers": "127.0.0.1:1", "format": "avro", "registry.url": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"registry.url": "127.0.0.1:8081"}, "option url = '127.0.0.1:8081': write http://host:port"),
        ({"registry.adress": "x"}, "a schema registry has no option 'adress'"),
        ({"registry.version": "newest"}, "option version = 'newest'"),
        ({"registry.user": "ada"}, "registry.user and registry.password go together"),
        (
            {"registry.user": "a", "registry.password": "${env:X}", "registry.token": "${env:X}"},
            "both say who asks: give one",
        ),
        ({"format": "csv"}, "format csv takes no schema registry"),
        ({"format": "debezium-json"}, "format debezium-json takes no schema registry"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options_of({**KAFKA, **options})
    assert said in str(raised.value)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.extras._is_there", lambda module: False)
    options_of(KAFKA)  # Avro needs none
    with pytest.raises(ConfigError, match=r"not installed: grpc_tools\nhint: pip install '\.\[registry\]'"):
        options_of({**KAFKA, "format": "protobuf"})
    with pytest.raises(ConfigError, match=r"not installed: jsonschema\nhint: pip install '\.\[registry\]'"):
        options_of({**KAFKA, "format": "json"})


def test_the_subject_is_the_topics_unless_it_is_named() -> None:
    assert registry_options(options_of(KAFKA).format_options).subject == "orders-value"
    named = options_of({**KAFKA, "registry.subject": "shop.Order"})
    assert registry_options(named.format_options).subject == "shop.Order"
    without_url = {name: text for name, text in KAFKA.items() if name != "registry.url"}
    with pytest.raises(ConfigError, match="a schema registry needs the option url"):
        options_of({**without_url, "registry.subject": "x"})


@pytest.mark.parametrize("name", ["registry.password", "registry.token"])
def test_a_secret_that_is_written_out_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="holds a secret written out"):
        require_references({name: "hunter2"})
    with pytest.raises(ConfigError, match="holds a secret written out"):
        require_references({"registry.url": "http://ada:hunter2@127.0.0.1:1"})


def test_a_subject_without_versions(registry: RegistryServer) -> None:
    given = {"registry.url": registry.url, "registry.subject": "nobody-value"}
    with pytest.raises(ConnectorError, match="has no subject nobody-value"):
        required_version(registry_options(given))
    with pytest.raises(ConnectorError, match="has no version 3 of nobody-value"):
        required_version(registry_options(given | {"registry.version": "3"}))


def test_a_schema_may_be_as_large_as_json_allows(registry: RegistryServer) -> None:
    fields = [{"name": f"a_rather_long_name_{n}", "type": ["null", "string"], "default": None} for n in range(2_000)]
    text = json.dumps({"type": "record", "name": "Wide", "fields": fields})
    client = SchemaRegistry((registry.url,))
    assert client.schema(client.register(new_subject(), Schema(SchemaType.AVRO, text))).text == text
