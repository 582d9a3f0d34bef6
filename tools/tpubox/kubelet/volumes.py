"""The volumes of a pod as folders on this machine.

Supported are emptyDir, configMap, secret, downwardAPI, projected (including service account tokens), hostPath, and
buckets through GKE's Cloud Storage driver (see `mounted_buckets`). Content from the API is read only, with the links
that a kubelet uses for updates, but files do not change after the start of the pod. Sizes are not limited. A pod with
another kind of volume keeps waiting, with a message.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpubox.kubelet.env import BadConfig, Object, Sources, expand, field, resource
from tpubox.kubelet.mounted_buckets import Bucket, is_bucket
from tpukit.places.local.processes import Mount

_FILE_MODE = 0o644
_HOST_PATHS: Mapping[str, tuple[Callable[[Path], bool], str]] = {
    "Directory": (Path.is_dir, "directory"),
    "File": (Path.is_file, "file"),
    "Socket": (Path.is_socket, "socket file"),
    "CharDevice": (Path.is_char_device, "character device"),
    "BlockDevice": (Path.is_block_device, "block device"),
}
"""Required type of each hostPath, and its name in the kubelet's messages.

https://github.com/kubernetes/kubernetes/blob/master/pkg/volume/hostpath/host_path.go
"""


class MountFailed(BadConfig):
    """A volume is not available yet: no container of the pod is created until it is, and only an event reports it."""


class UnknownKind(BadConfig):
    """A kind of volume that is not supported here."""


@dataclass(frozen=True, slots=True)
class Context:
    """The data that the content of a volume may depend on."""

    pod: Object
    addresses: Mapping[str, str]  # podIP, hostIP
    capacity: Mapping[str, str]  # of the node
    sources: Sources
    token: Callable[[Object], str]  # of a service account, from the volume's settings
    bucket: Callable[[Object], Bucket]  # mounts the bucket of a volume


@dataclass(frozen=True, slots=True)
class Made:
    """The volumes of a pod, by name."""

    folders: Mapping[str, Path]
    read_only: frozenset[str]  # volumes that are never writable
    buckets: Mapping[str, Bucket]


def make(context: Context, folder: Path) -> Made:
    """Create all volumes of the pod, except existing ones. Raise MountFailed for a volume that cannot be created."""
    folders, read_only, buckets = {}, set(), {}
    for volume in context.pod["spec"].get("volumes", []):
        name = volume["name"]
        try:
            if "hostPath" in volume:
                folders[name] = _host_path(volume["hostPath"])
            elif is_bucket(volume):
                buckets[name] = context.bucket(volume)
                folders[name] = buckets[name].folder
                read_only |= {name} if buckets[name].read_only else set()
            else:
                folders[name] = folder / name
                read_only |= set() if "emptyDir" in volume else {name}
                if not folders[name].exists():
                    _fill(context, volume, folders[name])
        except UnknownKind:
            raise
        except (BadConfig, OSError) as problem:
            said = problem.message if isinstance(problem, BadConfig) else str(problem)
            raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {said}') from problem
    return Made(folders, frozenset(read_only), buckets)


def in_memory(pod: Object, container: Object, folders: Mapping[str, Path]) -> tuple[Path, ...]:
    """Return the folders of volumes in memory that a container may write to, and so is charged for.

    A kernel charges the writer; if several containers may write, each of them is charged here.
    """
    written = {mount["name"] for mount in container.get("volumeMounts", []) if not mount.get("readOnly")}
    own = [volume for volume in pod["spec"].get("volumes", []) if volume["name"] in written]
    return tuple(folders[volume["name"]] for volume in own if (volume.get("emptyDir") or {}).get("medium") == "Memory")


def mounts(container: Object, made: Made, env: Mapping[str, str], denied: Collection[str] = ()) -> list[Mount]:
    """Return the mounts of a container. `denied` lists further paths that are not writable."""
    found = []
    for mount in container.get("volumeMounts", []):
        name, target = mount["name"], mount["mountPath"]
        source = made.folders[name]
        part = expand(mount["subPathExpr"], env) if "subPathExpr" in mount else mount.get("subPath", "")
        if part:
            if ".." in Path(part).parts or Path(part).is_absolute():
                raise BadConfig(f"subPath {part!r} leaves its volume")
            source /= part
            if not source.exists():
                source.mkdir(parents=True)
        fixed = bool(mount.get("readOnly")) or name in made.read_only or target in denied
        found.append(Mount(source, target, fixed))
    return sorted(found, key=lambda mount: len(Path(mount.target).parts))  # outer before inner


def _host_path(told: Object) -> Path:
    """Return the path, created if it has no type or a type that permits it (the runtime does so in the first case)."""
    path, kind = Path(told["path"]), told.get("type") or ""
    if kind in _HOST_PATHS:
        fits, words = _HOST_PATHS[kind]
        if not fits(path):
            raise BadConfig(f"hostPath type check failed: {path} is not a {words}")
    elif kind == "FileOrCreate":
        if path.is_dir():
            raise BadConfig(f"hostPath type check failed: {path} is not a file")
        path.touch()
    elif kind == "DirectoryOrCreate" or not path.exists():
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    return path


def _fill(context: Context, volume: Object, folder: Path) -> None:
    """Create a volume atomically: if something is missing, the volume does not exist at all."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    if "emptyDir" in volume:
        new.chmod(0o777)
        new.rename(folder)
        return
    # As in a kubelet, which replaces all files at once with one link:
    # https://github.com/kubernetes/kubernetes/blob/master/pkg/volume/util/atomic_writer.go
    inside = new / time.strftime("..%Y_%m_%d_%H_%M_%S.000000000", time.gmtime())
    inside.mkdir()
    source = volume.get("projected", {})
    for part in source.get("sources", []) if "projected" in volume else [volume]:
        modes = [value.get("defaultMode", _FILE_MODE) for value in part.values() if isinstance(value, Mapping)]
        mode = source.get("defaultMode", _FILE_MODE) if "projected" in volume else next(iter(modes), _FILE_MODE)
        _write(inside, _files(context, part), mode)
    (new / "..data").symlink_to(inside.name)
    for entry in inside.iterdir():
        (new / entry.name).symlink_to(f"..data/{entry.name}")
    new.rename(folder)


def _files(context: Context, source: Object) -> dict[str, tuple[bytes, int | None]]:
    """Return content and mode of each file of a source, by path."""
    namespace = context.pod["metadata"]["namespace"]
    if (config_map := source.get("configMap")) is not None:
        name = config_map["name"]
        return _keys("config", config_map, context.sources.config_map(namespace, name), f'configmap "{name}"')
    if (secret := source.get("secret")) is not None:
        name = secret.get("secretName") or secret["name"]
        return _keys("secret", secret, context.sources.secret(namespace, name), f'secret "{name}"')
    if (downward := source.get("downwardAPI")) is not None:
        return {item["path"]: (_downward(context, item).encode(), item.get("mode")) for item in downward["items"]}
    if (token := source.get("serviceAccountToken")) is not None:
        return {token["path"]: (context.token(token).encode(), None)}
    kinds = ", ".join(key for key in source if key != "name")
    raise UnknownKind(f"volumes of kind {kinds} are not supported here")


def _keys(kind: str, source: Object, data: Mapping[str, Any] | None, what: str) -> dict[str, tuple[bytes, int | None]]:
    optional = bool(source.get("optional"))
    if data is None:
        if optional:
            return {}
        raise BadConfig(f"{what} not found")
    items = source.get("items") or [{"key": key, "path": key} for key in data]
    found = {}
    for item in items:
        if item["key"] in data:
            value = data[item["key"]]
            found[item["path"]] = (value if isinstance(value, bytes) else str(value).encode(), item.get("mode"))
        elif not optional:
            raise BadConfig(f"references non-existent {kind} key: {item['key']}")
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
