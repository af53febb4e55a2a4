"""An API server of Kubernetes on loopback, as far as Spark asks one: objects, lists by labels, and watches.

It keeps what it is sent, and tells a listener of pods that come and go (pods.py).  It answers a watch over HTTP, not
over a web socket, which clients try first.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KINDS = {
    "pods": "Pod",
    "services": "Service",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
Object = dict[str, Any]
#: A label's name, whether it must have the value or must not, and the value.
Selector = tuple[tuple[str, bool, str], ...]


class Cluster:
    """The objects of one namespace, and which verbs were used on which resources."""

    def __init__(self, added: Callable[[Object], None], deleted: Callable[[Object], None]) -> None:
        self._added, self._deleted = added, deleted
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._version = 0
        self._watches: list[tuple[str, Selector, queue.Queue[Object]]] = []
        self.used: set[tuple[str, str]] = set()

    def get(self, resource: str, name: str) -> Object | None:
        """An object by its name."""
        return self._objects.get((resource, name))

    def list(self, resource: str, labels: Selector) -> list[Object]:
        """The objects that have the labels."""
        with self._lock:
            found = [each for (kind, _), each in self._objects.items() if kind == resource]
        return [each for each in found if _has(each, labels)]

    def create(self, resource: str, given: Object) -> Object:
        """Keep a new object."""
        meta = given.setdefault("metadata", {})
        meta.setdefault("name", f"{meta.get('generateName', 'object-')}{uuid.uuid4().hex[:5]}")
        meta |= {"uid": str(uuid.uuid4()), "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
        given |= {"apiVersion": "v1", "kind": KINDS[resource]}
        if resource == "pods":
            given["status"] = {"phase": "Pending"}
        self._put("ADDED", resource, given)
        if resource == "pods":
            self._added(given)
        return given

    def update(self, resource: str, name: str, change: Object) -> Object | None:
        """Merge a change into an object."""
        if (known := self.get(resource, name)) is None:
            return None
        changed = _merged(known, change)
        self._put("MODIFIED", resource, changed)
        return changed

    def delete(self, resource: str, name: str) -> Object | None:
        """Forget an object."""
        with self._lock:
            found = self._objects.pop((resource, name), None)
        if found is not None:
            self._tell("DELETED", resource, found)
            if resource == "pods":
                self._deleted(found)
        return found

    def watch(self, resource: str, labels: Selector) -> queue.Queue[Object]:
        """What happens from now on to objects that have the labels."""
        events: queue.Queue[Object] = queue.Queue()
        with self._lock:
            self._watches.append((resource, labels, events))
        return events

    def _put(self, event: str, resource: str, given: Object) -> None:
        with self._lock:
            self._version += 1
            given["metadata"]["resourceVersion"] = str(self._version)
            self._objects[resource, given["metadata"]["name"]] = given
        self._tell(event, resource, given)

    def _tell(self, event: str, resource: str, given: Object) -> None:
        with self._lock:
            for kind, labels, events in self._watches:
                if kind == resource and _has(given, labels):
                    events.put({"type": event, "object": json.loads(json.dumps(given))})


def _selector(query: dict[str, str]) -> Selector:
    """The terms of a selector of labels: ``name=value`` and ``name!=value``."""
    terms = [each for each in query.get("labelSelector", "").split(",") if each]
    parts = [re.fullmatch(r"([^=!]+)(!?=)=?(.*)", each) for each in terms]
    assert all(parts), f"this server does not know a term of {terms}"
    return tuple((part[1], part[2] == "=", part[3]) for part in parts if part is not None)


def _has(given: Object, labels: Selector) -> bool:
    known = given["metadata"].get("labels", {})
    return all((known.get(name) == value) == wanted for name, wanted, value in labels)


def _merged(known: Object, change: Object) -> Object:
    merged = dict(known)
    for name, value in change.items():
        before = merged.get(name)
        merged[name] = _merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return merged


class _Handler(BaseHTTPRequestHandler):
    """One request; ``cluster`` is set by ``api_server``."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def do_GET(self) -> None:
        resource, name, query = self._place()
        if "upgrade" in self.headers.get("Connection", "").lower():
            return self._answer(503, {})
        labels = _selector(query)
        if query.get("watch") == "true":
            self.cluster.used.add(("watch", resource))
            return self._stream(self.cluster.watch(resource, labels))
        if name:
            return self._answer_object("get", resource, self.cluster.get(resource, name))
        self.cluster.used.add(("list", resource))
        items = self.cluster.list(resource, labels)
        return self._answer(
            200,
            {
                "kind": f"{KINDS[resource]}List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"},
                "items": items,
            },
        )

    def do_POST(self) -> None:
        resource, _, _ = self._place()
        self.cluster.used.add(("create", resource))
        self._answer(201, self.cluster.create(resource, self._body()))

    def do_PATCH(self) -> None:
        resource, name, _ = self._place()
        self._answer_object("patch", resource, self.cluster.update(resource, name, self._body()))

    def do_PUT(self) -> None:
        resource, name, _ = self._place()
        self._answer_object("update", resource, self.cluster.update(resource, name, self._body()))

    def do_DELETE(self) -> None:
        resource, name, query = self._place()
        self._body()
        if name:
            return self._answer_object("delete", resource, self.cluster.delete(resource, name))
        self.cluster.used.add(("deletecollection", resource))
        labels = _selector(query)
        for each in self.cluster.list(resource, labels):
            self.cluster.delete(resource, each["metadata"]["name"])
        return self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _place(self) -> tuple[str, str, dict[str, str]]:
        """The resource, the name and the query of ``/api/v1/namespaces/NAMESPACE/RESOURCE/NAME?…``."""
        address = urlsplit(self.path)
        parts = [*address.path.strip("/").split("/"), "", ""]
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        return parts[4], parts[5], query

    def _body(self) -> Object:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(content) if content else {}

    def _answer_object(self, verb: str, resource: str, found: Object | None) -> None:
        self.cluster.used.add((verb, resource))
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self._answer(200 if found is not None else 404, missing if found is None else found)

    def _answer(self, code: int, content: Object) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, events: queue.Queue[Object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                text = json.dumps(events.get()).encode() + b"\n"
                self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def api_server(cluster: Cluster) -> Iterator[str]:
    """Serve a cluster; its URL comes out."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
