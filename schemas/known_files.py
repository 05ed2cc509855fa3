"""Files of Protobuf that schemas may import without a reference: serializers bring them along.

    google/protobuf/*   in grpcio-tools
    google/type/*       in googleapis-common-protos
    confluent/*         here: the options and types of Confluent's own serializers, as their
                        clients describe them (confluent_kafka/schema_registry/confluent)
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_VARIANT = """
syntax = "proto3";
package confluent.type;
message Variant { bytes metadata = 1; bytes value = 2; }
"""
# The former place of a type.
_FORMER = """
syntax = "proto3";
import public "confluent/type/decimal.proto";
"""
CONFLUENTS = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": _FORMER,
}


def write_known_files(folder: Path) -> list[Path]:
    """Write files below a folder; return the folders in which the compiler finds all of them.

    Raises ImportError when a package with files is missing.
    """
    for name, text in CONFLUENTS.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "google").mkdir()
    (folder / "google" / "type").symlink_to(_folder_of("google.type"))
    return [folder, _folder_of("grpc_tools") / "_proto"]


def _folder_of(package: str) -> Path:
    found = find_spec(package)
    if not found or not found.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    return Path(next(iter(found.submodule_search_locations)))
