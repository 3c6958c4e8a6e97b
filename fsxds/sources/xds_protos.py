"""Collect the API that the xds-protos package carries, for when there is no Envoy."""

from __future__ import annotations

import importlib
import importlib.metadata

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from fsxds.errors import ApiError

_PACKAGE = "xds-protos"
_SUFFIX = "_pb2.py"


def installed_version() -> str:
    """Return the version of the package; ApiError when it is not installed."""
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ApiError(f"no API: neither an Envoy nor the package {_PACKAGE} is here; give --envoy PATH") from error


def read_xds_protos() -> FileDescriptorSet:
    """Import every module of the package and return their files, with all they import."""
    files: dict[str, FileDescriptor] = {}
    for path in importlib.metadata.files(_PACKAGE) or ():
        if path.name.endswith(_SUFFIX):
            name = ".".join(path.with_suffix("").parts)
            try:
                _collect(importlib.import_module(name).DESCRIPTOR, files)
            except ModuleNotFoundError:
                continue  # The package's `test` is hidden by the standard library's; nothing of Envoy's needs it.
            except (ImportError, TypeError) as error:
                raise ApiError(f"{_PACKAGE}: {name} cannot be imported ({error}); give --envoy PATH") from error
    protos = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(protos.file.add())
    return protos


def _collect(file: FileDescriptor, files: dict[str, FileDescriptor]) -> None:
    if file.name not in files:
        for dependency in file.dependencies:
            _collect(dependency, files)
        files[file.name] = file
