"""Values that files, directories and the environment give, beside Kafka's own providers."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.layers import static_layer
from tests.config.conftest import Ask

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file,env,directory",
    "config.providers.file.class": PACKAGE + "FileConfigProvider",
    "config.providers.env.class": PACKAGE + "EnvVarConfigProvider",
    "config.providers.directory.class": PACKAGE + "DirectoryConfigProvider",
}
SECRET = "open-sesame-41"


def layer_of(
    settings: dict[str, str], environment: dict[str, str] | None = None
) -> dict[str, str]:
    pairs = [f"{name}={value}" for name, value in (PROVIDERS | settings).items()]
    return dict(static_layer(None, environment or {}, pairs).values)


def refusal_of(settings: dict[str, str], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        layer_of(settings, environment)
    return str(refused.value)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory with a properties file, and files that are values whole."""
    (tmp_path / "broker.properties").write_text(f"token={SECRET}\nname: gr\\u00fc\u00df\n")
    (tmp_path / "password").write_text(f"{SECRET}\n")
    return tmp_path


def test_a_value_comes_from_a_file_a_directory_or_the_environment(secrets: Path) -> None:
    found = layer_of(
        {
            "a": f"${{file:{secrets}/broker.properties:token}}",
            "b": f"${{directory:{secrets}:password}}",
            "c": "${env:TOKEN}",
            "d": f"<${{env::TOKEN}}|${{file:{secrets}/broker.properties:name}}>",
        },
        {"TOKEN": "t"},
    )
    assert found["a"] == SECRET and found["b"] == f"{SECRET}\n" and found["c"] == "t"
    assert found["d"] == "<t|grüß>"


def test_it_may_be_written_anywhere_and_be_used_everywhere(secrets: Path) -> None:
    file = secrets / "server.properties"
    file.write_text(f"odradek.admin.token=${{file:{secrets}/broker.properties:token}}\n")
    environment = {
        "KAFKA_CONFIG_PROVIDERS": "file,env",
        "KAFKA_CONFIG_PROVIDERS_FILE_CLASS": PROVIDERS["config.providers.file.class"],
        "KAFKA_CONFIG_PROVIDERS_ENV_CLASS": PROVIDERS["config.providers.env.class"],
        "KAFKA_NUM_PARTITIONS": "${env:COUNT}",
        "COUNT": " 7 ",
    }
    resolved = resolve_broker([static_layer(file, environment, ["broker.rack=${env:COUNT}"])])
    assert resolved.config.odradek_admin_token == SECRET
    assert resolved.config.num_partitions == 7 and resolved.config.broker_rack == "7"
    assert resolved.entries["odradek.admin.token"].value is None
    assert not resolved.warnings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"a": "${env:NOBODY}"}, "a: ${env:NOBODY}: there is no environment variable NOBODY"),
        ({"a": "${env:x:NOBODY}"}, "an environment variable has no path"),
        ({"a": "${file:/nowhere/x:k}"}, "cannot read /nowhere/x: No such file"),
        ({"a": "${file:k}"}, "it names no path"),
        ({"a": "${directory:/nowhere:../x}"}, "../x is not a file name"),
        ({"a": "${directory:/nowhere:x}"}, "cannot read /nowhere/x"),
        ({"config.providers": "vault"}, "set config.providers.vault.class to one of"),
        (
            {"config.providers.file.class": "com.example.Vault"},
            "com.example.Vault is not supported",
        ),
        ({"config.providers.env.param.allowlist.pattern": "("}, "is not a regular expression"),
        ({"config.providers.file.param.allowed.paths": "a/b"}, "a/b is not absolute"),
        ({"config.providers.file.param.allowed.paths": "/nowhere"}, "does not exist"),
        ({"config.providers": "", "a": "${env:HOME}"}, "config.providers does not name env"),
    ],
)  # fmt: skip
def test_a_reference_that_cannot_be_resolved_is_refused_with_the_reason(
    settings: dict[str, str], message: str
) -> None:
    assert message in refusal_of(settings, {"HOME": SECRET})


def test_other_texts_with_a_dollar_stay_as_they_are() -> None:
    texts = ["$", "${", "${}", "${a}", "$1", "${vault:x}", "${:a}", "a$${b", "RULE:^(.*)$/$1/"]
    found = layer_of({f"a{number}": text for number, text in enumerate(texts)})
    assert [found[f"a{number}"] for number in range(len(texts))] == texts


@pytest.mark.parametrize(
    "path", ["{0}/../x", "{0}x/a", "/etc/passwd", "{0}/a/../../x", "relative"]
)
def test_only_allowed_paths_are_read(secrets: Path, path: str) -> None:
    allowed = {
        "config.providers.file.param.allowed.paths": f"{secrets}",
        "config.providers.directory.param.allowed.paths": f"{secrets}",
    }
    asked = path.format(secrets)
    assert "does not allow" in refusal_of({**allowed, "a": f"${{file:{asked}:k}}"})
    assert "does not allow" in refusal_of({**allowed, "a": f"${{directory:{asked}:k}}"})
    inside = f"${{file:{secrets}/x/../broker.properties:token}}"
    assert layer_of({**allowed, "a": inside})["a"] == SECRET


def test_only_allowed_variables_are_read() -> None:
    allowed = {"config.providers.env.param.allowlist.pattern": "BROKER_.*"}
    environment = {"BROKER_TOKEN": "t", "OTHER": SECRET, "X_BROKER_TOKEN": SECRET}
    assert layer_of({**allowed, "a": "${env:BROKER_TOKEN}"}, environment)["a"] == "t"
    for name in ("OTHER", "X_BROKER_TOKEN"):
        refusal = refusal_of({**allowed, "a": f"${{env:{name}}}"}, environment)
        assert f"does not allow {name}" in refusal and SECRET not in refusal


@pytest.mark.parametrize(
    "option", ["num.partitions", "log.retention.minutes", "log.cleaner.enable", "listeners"]
)
def test_no_error_quotes_a_value_that_was_provided(option: str) -> None:
    environment = {"V": SECRET}
    static = static_layer(
        None, environment, [*(f"{k}={v}" for k, v in PROVIDERS.items()), f"{option}=${{env:V}}"]
    )
    if option != "listeners":  # what a listener is nobody keeps secret
        with pytest.raises(ConfigError) as refused:
            resolve_broker([static])
        assert SECRET not in str(refused.value) and "${env:V}" in str(refused.value)
        assert option in str(refused.value) and refused.value.__cause__ is None


def test_no_error_quotes_what_is_not_a_setting() -> None:
    with pytest.raises(ConfigError) as refused:
        static_layer(None, {}, [f"={SECRET}", f"odradek.admin.token: {SECRET}"])
    assert SECRET not in str(refused.value) and "odradek.admin.token" in str(refused.value)


# --- beside Kafka -----------------------------------------------------------------------------


def _cases(folder: Path) -> list[dict[str, str]]:
    """Settings of pieces of references, put together by chance."""
    chance = random.Random(41)
    pieces = [
        "${", "}", ":", "file", "env", "directory", "vault", "$", "a", " ", "${env:HOME}",
        f"${{file:{folder}/x.properties:k}}", f"${{file:{folder}/x.properties:a:b}}",
        f"${{directory:{folder}:d}}", "${env::HOME}", f"{folder}/x.properties", "k",
    ]  # fmt: skip
    return [
        PROVIDERS | {"v": "".join(chance.choices(pieces, k=chance.randint(1, 5)))}
        for _ in range(400)
    ]


@pytest.mark.kafka
def test_references_mean_what_they_mean_to_kafka(tmp_path: Path, ask_kafka: Ask) -> None:
    (tmp_path / "x.properties").write_text("k=v\na\\:b: c\n")
    (tmp_path / "d").write_text(" whole\n")
    cases = _cases(tmp_path)
    with mock.patch.dict(os.environ, {"HOME": "/root"}):
        answers: list[dict[str, Any] | None] = ask_kafka(provided=cases)["provided"]
        environment = dict(os.environ)
    resolved = 0
    for case, kafka in zip(cases, answers, strict=True):
        try:
            ours = layer_of({"v": case["v"]}, environment)["v"]
        except ConfigError:
            # Kafka fails, too, or goes on with the text of the reference.
            assert kafka is None or "${" in kafka["v"], case["v"]
            continue
        assert kafka is not None and ours == kafka["v"], case["v"]
        resolved += ours != case["v"]
    assert resolved > 50
