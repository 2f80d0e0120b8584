"""Files of ``advise --emit``, read back as their programs read them."""

import ast
import ctypes
import ctypes.util
import importlib.util
import os
import shlex
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from .emit_tables import (
    NVINFER_KEYS,
    TRITON_ENUMERATIONS,
    TRITON_MESSAGES,
    ULTRALYTICS_ARGUMENTS,
)

GLIB = ctypes.util.find_library("glib-2.0")


def read_nvinfer(path) -> dict[str, Any]:
    """Read the group [property] with GLib's key files, as nvinfer does, by its documented kinds."""
    glib = ctypes.CDLL(GLIB)
    group = b"property"
    glib.g_key_file_new.restype = ctypes.c_void_p
    for name in ("get_string", "get_string_list", "get_keys"):
        getattr(glib, f"g_key_file_{name}").restype = ctypes.POINTER(ctypes.c_char_p)
    glib.g_key_file_get_string.restype = ctypes.c_char_p
    file = ctypes.c_void_p(glib.g_key_file_new())
    error, length = ctypes.c_void_p(), ctypes.c_size_t()
    assert glib.g_key_file_load_from_file(file, str(path).encode(), 0, ctypes.byref(error))
    names = glib.g_key_file_get_keys(file, group, ctypes.byref(length), ctypes.byref(error))
    found: dict[str, Any] = {}
    for name in names[: length.value]:
        kind = NVINFER_KEYS[name.decode()]
        if kind == "integer":
            value: Any = glib.g_key_file_get_integer(file, group, name, ctypes.byref(error))
        elif kind == "list":
            count = ctypes.c_size_t()
            words = glib.g_key_file_get_string_list(
                file, group, name, ctypes.byref(count), ctypes.byref(error)
            )
            value = [word.decode() for word in words[: count.value]]
        else:
            value = glib.g_key_file_get_string(file, group, name, ctypes.byref(error)).decode()
        assert not error.value, name
        found[name.decode()] = value
    return found


def triton_package() -> Any:
    """Return the module with Triton's whole schema, or ``None`` if tritonclient is not there."""
    try:
        path = distribution("tritonclient").locate_file("tritonclient/grpc/model_config_pb2.py")
    except PackageNotFoundError:
        return None
    # The package's own way there needs gRPC.
    spec = importlib.util.spec_from_file_location("model_config_pb2", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def triton_schema() -> Any:
    """Return the class of a model's configuration, made from the documented fields."""
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"string": field.TYPE_STRING, "int32": field.TYPE_INT32, "int64": field.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(
        name="documented.proto", package="documented", syntax="proto3"
    )
    for name, values in TRITON_ENUMERATIONS.items():
        made = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            # Names of values are unique in a file, and two enumerations here are nested in the
            # original: they have no name in common.
            made.value.add(name=value, number=number)
    for name, fields in TRITON_MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, words) in fields.items():
            *repeated, kind = words.split()
            one = message.field.add(name=key, number=number, label=field.LABEL_OPTIONAL)
            if repeated:
                one.label = field.LABEL_REPEATED
            if kind in plain:
                one.type = plain[kind]
            else:
                one.type_name = f".documented.{kind}"
                one.type = field.TYPE_ENUM if kind in TRITON_ENUMERATIONS else field.TYPE_MESSAGE
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("documented.ModelConfig"))


def read_triton(path, schema) -> Any:
    """Read ``config.pbtxt`` by Protocol Buffers' text format; an unknown field is an error."""
    return text_format.Parse(path.read_text(), schema())


def read_command(path) -> list[list[str]]:
    """Read a script that can be run: the words of each line that is not a comment."""
    assert path.read_text().startswith("#!/bin/sh\n#")
    assert os.access(path, os.X_OK)
    lines = [shlex.split(line, comments=True) for line in path.read_text().splitlines()]
    return [words for words in lines if words]


def read_ultralytics(path) -> dict[str, Any]:
    """Read a line of ``yolo export`` as its command line does: values are Python, or text."""
    ((program, mode, *pairs),) = read_command(path)
    assert (program, mode) == ("yolo", "export")
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        value: Any = text
        if ULTRALYTICS_ARGUMENTS[name] is not str:
            value = ast.literal_eval(text)
            assert isinstance(value, ULTRALYTICS_ARGUMENTS[name]), pair
        assert name not in found, pair
        found[name] = value
    return found


def read_providers(path) -> tuple[str, list[Any]]:
    """Read the model and the providers of a session from a module, without running it."""
    values = {}
    for statement in ast.parse(path.read_text()).body:
        values[statement.targets[0].id] = ast.literal_eval(statement.value)
    return values["model"], values["providers"]
