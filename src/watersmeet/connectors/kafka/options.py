"""The WITH options of Kafka streams, and the settings of Kafka's client.

References to secrets (``${env:NAME}``, ``${file:/path}``) are resolved in ``brokers``, in the options of Kafka's client
(``kafka.*``) and in those of a schema registry (``registry.*``), as late as possible, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from watersmeet.connectors.formats.registry_options import SUBJECT, check_registry, has_registry
from watersmeet.errors import ConfigError
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import masked, masked_value, resolve

CLIENT_PREFIX = "kafka."
PREFIXES = {"client": (CLIENT_PREFIX,), "format_options": ("json.", "csv.", "avro.", "protobuf.", "registry.")}
_SERVERS = "kafka.bootstrap.servers"
_RESERVED = (
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.key.serializer",
    "kafka.value.deserializer",
    "kafka.value.serializer",
)


def _names(text: object) -> object:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if isinstance(text, str) else text


class KafkaOptions(BaseModel):
    """The WITH options of a Kafka stream. Printing it shows no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    brokers: Annotated[str, Field(min_length=1)]
    format: Literal["json", "csv", "avro", "protobuf", "debezium-json"] = "json"
    starting: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: Annotated[int, Field(gt=0)] | None = None
    key: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    changelog: bool = False
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    format_options: dict[str, str] = {}
    client: dict[str, str] = {}
    """The ``kafka.*`` options with unresolved references."""

    def __repr__(self) -> str:
        shown = {**self.model_dump(exclude={"client", "format_options"}), **masked(self.client)}
        shown["brokers"] = self.shown_brokers
        return f"KafkaOptions({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    __str__ = __repr__

    @property
    def shown_brokers(self) -> str:
        """The brokers as messages name them."""
        return masked_value("brokers", self.brokers)


def options_of(options: Mapping[str, str]) -> KafkaOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = dict(options)
    for name in _RESERVED:
        if name in given:
            raise ConfigError(f"option {name} cannot be set: Spark sets it itself", option=name)
    servers = given.pop(_SERVERS, None)
    if servers is not None and given.setdefault("brokers", servers) != servers:
        raise ConfigError(f"brokers and {_SERVERS} are two names of one option, and differ", option=_SERVERS)
    if has_registry(given) and "topic" in given:
        given.setdefault(SUBJECT, f"{given['topic']}-value")
    found = parse_options(KafkaOptions, "kafka", given, nested=PREFIXES)
    if has_registry(given):
        check_registry(found.format_options, found.format)
    return found


def client_options(options: KafkaOptions) -> dict[str, str]:
    """Return the options of Kafka's client with resolved references."""
    resolved = {name: resolve(value) for name, value in options.client.items()}
    return {**resolved, _SERVERS: resolve(options.brokers)}
