"""The volumes of a pod as folders on this machine.

emptyDir, configMap, secret, downwardAPI, projected (service account tokens too), hostPath, and buckets through GKE's
Cloud Storage driver, each a folder below `buckets` that refuses what GCS FUSE refuses (see `pods.guard`). Files are as
they were when the pod started: a kubelet would follow later changes. Sizes are not limited. Other kinds keep the pod
waiting, with a message that says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.pods import Mount
from tpukit.sandbox.agent.env import BadConfig, Object, Sources, expand, field, resource

GCSFUSE = "gcsfuse.csi.storage.gke.io"
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Context:
    """What the content of a volume may depend on."""

    pod: Object
    addresses: Mapping[str, str]  # podIP, hostIP
    capacity: Mapping[str, str]  # of the node
    sources: Sources
    token: Callable[[Object], str]  # of a service account, by what the volume says of it
    buckets: Path


def make(context: Context, folder: Path) -> dict[str, Path]:
    """The folder of each volume of the pod. What is there already stays as it is."""
    found = {}
    for volume in context.pod["spec"].get("volumes", []):
        name = volume["name"]
        if "hostPath" in volume:
            found[name] = Path(volume["hostPath"]["path"])
        elif is_bucket(volume):
            found[name] = context.buckets / volume["csi"]["volumeAttributes"]["bucketName"]
            if not found[name].is_dir():
                raise BadConfig(f'MountVolume.SetUp failed for volume "{name}": bucket {found[name].name} not found')
        else:
            found[name] = folder / name
            if not found[name].exists():
                _fill(context, volume, found[name])
    return found


def is_bucket(volume: Object) -> bool:
    return bool(volume.get("csi", {}).get("driver") == GCSFUSE)


def mounts(container: Object, folders: Mapping[str, Path], env: Mapping[str, str]) -> list[Mount]:
    found = []
    for mount in container.get("volumeMounts", []):
        source = folders[mount["name"]]
        part = expand(mount["subPathExpr"], env) if "subPathExpr" in mount else mount.get("subPath", "")
        if part:
            if ".." in Path(part).parts or Path(part).is_absolute():
                raise BadConfig(f"subPath {part!r} leaves its volume")
            source /= part
            if not source.exists():
                source.mkdir(parents=True)
        found.append(Mount(source, mount["mountPath"], bool(mount.get("readOnly"))))
    return sorted(found, key=lambda mount: len(Path(mount.target).parts))  # outer before inner


def _fill(context: Context, volume: Object, folder: Path) -> None:
    """All at once: a volume that lacks something is not there at all."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    if "emptyDir" in volume:
        new.chmod(0o777)
    elif "projected" in volume:
        source = volume["projected"]
        for part in source.get("sources", []):
            _write(new, _files(context, part), source.get("defaultMode", _FILE_MODE))
    else:
        modes = [value.get("defaultMode", _FILE_MODE) for value in volume.values() if isinstance(value, Mapping)]
        _write(new, _files(context, volume), modes[0] if modes else _FILE_MODE)
    new.rename(folder)


def _files(context: Context, source: Object) -> dict[str, tuple[bytes, int | None]]:
    """Content and mode of each file that a source gives, by path."""
    namespace = context.pod["metadata"]["namespace"]
    if (config_map := source.get("configMap")) is not None:
        return _keys(config_map, context.sources.config_map(namespace, config_map["name"]), config_map["name"])
    if (secret := source.get("secret")) is not None:
        name = secret.get("secretName") or secret["name"]
        return _keys(secret, context.sources.secret(namespace, name), name)
    if (downward := source.get("downwardAPI")) is not None:
        return {item["path"]: (_downward(context, item).encode(), item.get("mode")) for item in downward["items"]}
    if (token := source.get("serviceAccountToken")) is not None:
        return {token["path"]: (context.token(token).encode(), None)}
    kinds = ", ".join(key for key in source if key != "name")
    raise BadConfig(f"volumes of kind {kinds} are not made here")


def _keys(source: Object, data: Mapping[str, Any] | None, name: str) -> dict[str, tuple[bytes, int | None]]:
    optional = bool(source.get("optional"))
    if data is None:
        if optional:
            return {}
        raise BadConfig(f'{"secret" if "secretName" in source else "configmap or secret"} "{name}" not found')
    items = source.get("items") or [{"key": key, "path": key} for key in data]
    found = {}
    for item in items:
        if item["key"] in data:
            value = data[item["key"]]
            found[item["path"]] = (value if isinstance(value, bytes) else str(value).encode(), item.get("mode"))
        elif not optional:
            raise BadConfig(f"references non-existent key: {item['key']} of {name}")
    return found


def _downward(context: Context, item: Object) -> str:
    if "fieldRef" in item:
        return field(item["fieldRef"]["fieldPath"], context.pod, context.addresses)
    return resource(item["resourceFieldRef"], context.pod["spec"]["containers"][0], context.pod, context.capacity)


def _write(folder: Path, files: Mapping[str, tuple[bytes, int | None]], mode: int) -> None:
    for path, (content, own_mode) in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(own_mode if own_mode is not None else mode)
