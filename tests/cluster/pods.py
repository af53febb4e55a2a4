"""Pods as processes of this machine: each runs what its image's entrypoint would run, with the pod's environment.

What a pod mounts is a folder of its own, and the paths of mounts in its command, its environment and its config maps
are changed to that.  Config maps and secrets are looked up as Kubernetes does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes_api import Cluster, Object

_ADDRESS = "127.0.0.1"
_STOP_SECONDS = 20


class Pods:
    """The pods of one cluster; ``image`` is the environment that its image sets."""

    def __init__(
        self, folder: Path, entrypoint: Sequence[str], image: Mapping[str, str], secrets: Mapping[str, str]
    ) -> None:
        self._folder, self._entrypoint = folder, entrypoint
        self._image, self._secrets = image, secrets
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[Object] = []
        self.cluster = Cluster(self._start, self._stop)

    def kill_executor(self) -> str:
        """Kill an executor that runs, with all its processes, as if its machine had failed; its name comes back."""
        running = (name for name, process in self._processes.items() if process.poll() is None and "-exec-" in name)
        name = next(running)
        os.killpg(self._processes[name].pid, signal.SIGKILL)
        return name

    def log_of(self, name: str) -> str:
        """What a pod has printed."""
        return (self._folder / name / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End all that run."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_STOP_SECONDS)

    def _start(self, pod: Object) -> None:
        self.started.append(pod)
        name = pod["metadata"]["name"]
        home = self._folder / name
        home.mkdir()
        (container,) = pod["spec"]["containers"]
        mounts = self._mounted(home, pod, container)
        variables = {each["name"]: _moved(self._value(each, pod), mounts) for each in container.get("env", [])}
        (home / "tmp").mkdir()
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [*self._entrypoint, *(_moved(each, mounts) for each in container.get("args", []))],
                cwd=home,
                env={**self._image, "TMPDIR": str(home / "tmp"), **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[name] = process
        self.cluster.update("pods", name, {"status": _status(container["name"], {"running": {}}, "Running")})
        threading.Thread(target=self._await_end, args=(name, container["name"], process), daemon=True).start()

    def _await_end(self, name: str, container: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        ended = {"terminated": {"exitCode": code if code >= 0 else 128 - code}}
        self.cluster.update("pods", name, {"status": _status(container, ended, "Failed" if code else "Succeeded")})

    def _stop(self, pod: Object) -> None:
        process = self._processes.get(pod["metadata"]["name"])
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def _mounted(self, home: Path, pod: Object, container: Object) -> dict[str, str]:
        """Make the folders that a pod mounts; where each is comes back."""
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
        found: dict[str, str] = {}
        for number, mount in enumerate(container.get("volumeMounts", [])):
            place = home / f"volume-{number}"
            place.mkdir()
            found[mount["mountPath"]] = str(place)
            if (map_name := volumes[mount["name"]].get("configMap", {}).get("name")) is not None:
                content = self.cluster.get("configmaps", map_name)
                assert content is not None, f"there is no ConfigMap {map_name}"
                for key, text in content.get("data", {}).items():
                    (place / key).write_text(_moved(text, found))
        return found

    def _value(self, variable: Object, pod: Object) -> str:
        if "valueFrom" not in variable:
            return str(variable.get("value") or "")
        source: dict[str, Any] = variable["valueFrom"]
        if "secretKeyRef" in source:
            return self._secrets[f"{source['secretKeyRef']['name']}:{source['secretKeyRef']['key']}"]
        fields = {"status.podIP": _ADDRESS, "metadata.name": pod["metadata"]["name"], "metadata.namespace": "default"}
        return str(fields[source["fieldRef"]["fieldPath"]])


def _moved(value: str, mounts: Mapping[str, str]) -> str:
    """Put the places of mounts for their paths; nothing is replaced twice."""
    if not mounts:
        return value
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w/.-])(?:{paths})(?![\w.-])", lambda found: mounts[found[0]], value)


def _status(container: str, state: Object, phase: str) -> Object:
    status = {
        "name": container,
        "state": state,
        "ready": phase == "Running",
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    conditions = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
    return {"phase": phase, "podIP": _ADDRESS, "containerStatuses": [status], "conditions": conditions}
