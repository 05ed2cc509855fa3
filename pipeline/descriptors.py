"""Add a field to a Protobuf message that shows whether bytes were read as such a message.

Spark's ``from_protobuf`` turns bytes that are not such a message into a row of nulls, and an empty
message too. But a repeated field of a message that was read is an array, empty or not, never null.
"""

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from odradek.pipeline.errors import PipelineError

# The highest number of a field: the least likely to be in use.
_LAST_NUMBER = 2**29 - 1


def add_repeated_field(descriptor_set: bytes, message: str, name: str) -> bytes:
    """Add an empty field to a message, named with its package or without.

    Raises PipelineError for bytes that are not a descriptor set, or lack the message.
    """
    try:
        files = FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise PipelineError(
            "--schema is not a Protobuf descriptor set: protoc --include_imports "
            "--descriptor_set_out=FILE writes one"
        ) from error
    named: dict[str, list[DescriptorProto]] = {}
    for file in files.file:
        for one in file.message_type:
            full = f"{file.package}.{one.name}".lstrip(".")
            for called in {full, one.name}:
                named.setdefault(called, []).append(one)
    if message not in named:
        raise PipelineError(
            f"--schema has no message {message}: it has {', '.join(sorted(named)) or 'none'}"
        )
    for one in named[message]:
        taken = {field.number for field in one.field}
        one.field.add(
            name=name,
            number=next(n for n in range(_LAST_NUMBER, 0, -1) if n not in taken),
            type=FieldDescriptorProto.TYPE_BOOL,
            label=FieldDescriptorProto.LABEL_REPEATED,
        )
    written: bytes = files.SerializeToString()
    return written
