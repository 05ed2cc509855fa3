"""Settings of AWS's config files: what counts first, what is refused, and rotated keys."""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.servers.s3_server import KEY, KEY_ID, REGION, S3Server
from odradek.storage.objects.aws_files import AwsFiles, KeyOfFiles
from odradek.storage.objects.opening import StoreOptions, completed, open_store
from odradek.storage.objects.probe import probe
from odradek.storage.objects.store import StoreRefused
from tests.storage.object_stores import bucket, s3_server

__all__ = ["bucket", "s3_server"]

CREDENTIALS, CONFIG = "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"
SECRET = "hidden-secret"
PAIR = f"aws_access_key_id = hidden-id\naws_secret_access_key = {SECRET}\n"
HERE = "http://here"
# Setting, its option, its variables in their order, and its key in a file.
PLACES = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Return variables that name two files, which do not exist yet."""
    return {CREDENTIALS: str(tmp_path / "credentials"), CONFIG: str(tmp_path / "config")}


def write(variables: dict[str, str], credentials: str = "", config: str = "") -> AwsFiles:
    Path(variables[CREDENTIALS]).write_text(credentials)
    Path(variables[CONFIG]).write_text(config)
    return AwsFiles(variables)


def found_key(files: AwsFiles) -> tuple[str, str, str | None] | None:
    key = files.profile().key()
    return None if key is None else (key.id, key.secret, key.token)


@given(present=st.sets(st.integers(0, 6)), setting=st.sampled_from(sorted(PLACES)))
def test_the_first_place_that_has_a_setting_gives_it(
    tmp_path_factory: pytest.TempPathFactory, present: set[int], setting: str
) -> None:
    folder = tmp_path_factory.mktemp("aws")
    variables = {CREDENTIALS: str(folder / "credentials"), CONFIG: str(folder / "config")}
    key = {"endpoint": "endpoint_url", "region": "region"}[setting]
    places = ["option", *PLACES[setting], "credentials", "config"]
    has = {places[at]: f"http://{places[at]}" for at in present if at < len(places)}
    variables |= {name: has.get(name, "") for name in PLACES[setting]}
    texts = {
        name: f"[default]\n{key} = {has[name]}\n" if name in has else ""
        for name in ("credentials", "config")
    }
    profile = write(variables, **texts).profile()
    options = StoreOptions(**{setting: has.get("option")})  # type: ignore[arg-type]
    expected = next((has[name] for name in places if name in has), None)
    assert getattr(completed(options, variables, profile), setting) == expected


@pytest.mark.parametrize(
    ("style", "variable", "option", "expected"),
    [
        ("path", "", None, True), ("virtual", "", None, False), ("auto", "", None, None),
        ("path", "true", None, None), ("virtual", "", True, True), ("path", "", False, False),
    ],
)  # fmt: skip
def test_the_style_of_addresses(
    variables: dict[str, str], style: str, variable: str, option: bool | None, expected: bool
) -> None:
    variables["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = variable
    profile = write(variables, config=f"[default]\ns3 =\n  addressing_style = {style}\n").profile()
    assert completed(StoreOptions(path_style=option), variables, profile).path_style is expected


def test_an_endpoint_of_one_service_counts_before_that_of_all(variables: dict[str, str]) -> None:
    text = (
        "[profile dev]\nservices = local\nendpoint_url = http://all\n"
        "[services local]\nsqs =\n  endpoint_url = http://sqs\ns3 =\n  endpoint_url = http://s3\n"
    )
    variables["AWS_PROFILE"] = "dev"
    assert write(variables, config=text).profile().endpoint == "http://s3"
    with pytest.raises(StoreRefused, match=r"config has no section \[services local\]"):
        other = text.replace("[services local]", "[services other]")
        _ = write(variables, config=other).profile().endpoint


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("", "default"), ("default", "profile default"), ("a", "profile a"),
        ("a b", "profile 'a b'"),
    ],
)  # fmt: skip
def test_each_profile_has_its_section(
    variables: dict[str, str], name: str, section: str
) -> None:
    other = "[profile other]\nregion = no\n[a]\nregion = no\n"
    variables["AWS_PROFILE"] = name
    files = write(variables, config=f"{other}[{section}]\nregion = yes\n{PAIR}")
    assert files.profile().region == "yes"
    assert found_key(files) == ("hidden-id", SECRET, None)


def test_a_key_is_taken_from_one_file_as_a_whole(variables: dict[str, str]) -> None:
    config = f"[default]\n{PAIR}aws_session_token = t\n"
    first = "[default]\naws_access_key_id = i\naws_secret_access_key = s\n"
    assert found_key(write(variables, first, config)) == ("i", "s", None)
    assert found_key(write(variables, "[default]\nregion = here\n", config)) == (
        "hidden-id", SECRET, "t",
    )  # fmt: skip
    with_percent = "[default]\naws_access_key_id=i\naws_secret_access_key=%(x)s%=\n"
    assert found_key(write(variables, with_percent)) == ("i", "%(x)s%=", None)
    assert found_key(write(variables)) is None


def test_files_that_are_absent_say_nothing(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_key(AwsFiles(variables)) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert AwsFiles({}).profile().region is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = home\n")
    (tmp_path / ".aws" / "credentials").write_text(f"[default]\n{PAIR}")
    assert AwsFiles({}).profile().region == "home"
    assert found_key(AwsFiles({})) == ("hidden-id", SECRET, None)


def test_a_profile_that_is_missing_is_named_with_the_files(variables: dict[str, str]) -> None:
    variables["AWS_PROFILE"] = "nowhere"
    for files in (AwsFiles(variables), write(variables, f"[default]\n{PAIR}")):
        with pytest.raises(StoreRefused, match="AWS_PROFILE names nowhere") as caught:
            files.profile()
        assert all(variables[name] in str(caught.value) for name in (CREDENTIALS, CONFIG))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("role_arn = a\nsource_profile = b\n", "role_arn"),
        (f"{PAIR}role_arn = a\n", "role_arn"),
        ("web_identity_token_file = /f\nrole_arn = a\n", "web_identity_token_file"),
        ("sso_session = s\nsso_account_id = 1\nsso_role_name = r\n", "sso_account_id"),
        ("login_session = l\n", "login_session"),
        (f"credential_process = /bin/echo {SECRET}\n", "credential_process"),
        (f"{PAIR}credential_process = /bin/echo\n", "credential_process"),
    ],
)
def test_a_key_that_is_not_supported_is_named_with_its_profile(
    variables: dict[str, str], settings: str, key: str
) -> None:
    variables["AWS_PROFILE"] = "work"
    files = write(variables, config=f"[profile work]\n{settings}region = here\n")
    assert files.profile().region == "here"
    with pytest.raises(StoreRefused, match=rf"\b{key}\b") as caught:
        open_store("s3://topics", StoreOptions(), variables)
    text = "".join(traceback.format_exception(caught.value))
    assert "profile work" in text and "AWS_ACCESS_KEY_ID" in text and SECRET not in text
    # Nobody needs a key of the profile then.
    open_store("s3://topics", StoreOptions(access_key_id="i", secret_access_key="s"), variables)
    open_store("s3://topics", StoreOptions(), {**variables, "AWS_ACCESS_KEY_ID": "i"})
    web = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/f", "AWS_ROLE_ARN": "a"}
    if "role_arn" not in settings or "web_identity" in settings:
        open_store("s3://topics", StoreOptions(), {**variables, **web})


def test_a_key_of_the_credentials_file_counts_before_a_process(variables: dict[str, str]) -> None:
    files = write(variables, f"[default]\n{PAIR}", "[default]\ncredential_process = /bin/echo\n")
    assert found_key(files) == ("hidden-id", SECRET, None)


@pytest.mark.parametrize(
    "text",
    [
        SECRET, f"[default]\n{SECRET}\n", f"[default\n{PAIR}", f"[default]\n{PAIR}{PAIR}",
        f"[default]\naws_access_key_id = hidden-id\n{SECRET}",
        f"[default]\naws_secret_access_key = {SECRET}\naws_access_key_id = \n",
        f"[default]\naws_access_key_id = hidden-id\n#{SECRET}",
        f"[default]\n{PAIR}\xff",
    ],
)  # fmt: skip
def test_no_error_shows_a_credential(variables: dict[str, str], text: str) -> None:
    Path(variables[CREDENTIALS]).write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreRefused, match="credentials") as caught:
        open_store("s3://topics", StoreOptions(), variables)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hidden" not in shown and variables[CREDENTIALS] in shown


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read each file")
def test_a_file_that_may_not_be_read_is_named(variables: dict[str, str]) -> None:
    files = write(variables, f"[default]\n{PAIR}")
    Path(variables[CREDENTIALS]).chmod(0)
    with pytest.raises(StoreRefused, match=r"credentials.*EACCES"):
        files.profile()


def test_a_directory_is_no_file(variables: dict[str, str]) -> None:
    Path(variables[CREDENTIALS]).mkdir()
    assert found_key(AwsFiles(variables)) is None


def test_no_key_is_shown(variables: dict[str, str]) -> None:
    profile = write(variables, f"[default]\n{PAIR}aws_session_token = hidden\n").profile()
    key = profile.key()
    assert key is not None
    shown = f"{profile!r} {key!r} {KeyOfFiles(AwsFiles(variables), key)!r}"
    assert "hidden" not in shown


def test_a_key_is_read_again_once_its_file_changes(
    variables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    files = write(variables, f"[default]\n{PAIR}")
    key = files.profile().key()
    assert key is not None
    provide = KeyOfFiles(files, key)
    assert provide()["secret_access_key"] == SECRET
    for number in (1, 2, 3):
        text = f"[default]\naws_access_key_id = {number}\naws_secret_access_key = s\n"
        Path(variables[CREDENTIALS]).write_text(f"{text}aws_session_token = {'t' * number}\n")
        provided = provide()
        assert (provided["access_key_id"], provided["token"]) == (str(number), "t" * number)
    with caplog.at_level(logging.WARNING):
        # Tools write the file while it is read; and somebody removes it.
        Path(variables[CREDENTIALS]).write_text(f"[default]\naws_access_key_id = 4{SECRET}\n")
        assert [provide()["access_key_id"] for _ in range(3)] == ["3"] * 3
        Path(variables[CREDENTIALS]).unlink()
        assert [provide()["access_key_id"] for _ in range(3)] == ["3"] * 3
    assert len(caplog.records) == 2
    assert "hidden" not in caplog.text
    Path(variables[CREDENTIALS]).write_text(f"[default]\n{PAIR}")
    assert provide()["access_key_id"] == "hidden-id"


def test_a_server_takes_the_key_of_a_file_and_that_after_it(
    s3_server: S3Server, bucket: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    variables["AWS_PROFILE"] = "rotated"
    key = f"aws_access_key_id = {KEY_ID}\naws_secret_access_key = {KEY}\n"
    config = f"[profile rotated]\nregion = {REGION}\nendpoint_url = {s3_server.endpoint}\n"
    write(variables, f"[rotated]\n{key}", f"{config}s3 =\n  addressing_style = path\n")
    store = open_store(f"{bucket}/by-files", StoreOptions(request_timeout_ms=10_000), variables)
    probe(store)
    Path(variables[CREDENTIALS]).write_text(f"[rotated]\n{PAIR}")
    with pytest.raises(StoreRefused) as caught:
        probe(store)
    assert "hidden" not in "".join(traceback.format_exception(caught.value))
    Path(variables[CREDENTIALS]).write_text(f"[rotated]\n{key}# The former key is back.\n")
    probe(store)


def test_an_option_wins_over_the_variable_for_one_service(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    probe(open_store(f"{bucket}/by-option", s3_server.options(), os.environ))
