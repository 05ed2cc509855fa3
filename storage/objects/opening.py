"""Opens the object store that a URL names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from odradek.dataclass import dataclass
from odradek.storage.objects.aws_files import AwsFiles, AwsProfile, KeyOfFiles
from odradek.storage.objects.store import ObjectStore, StoreRefused

if TYPE_CHECKING:
    from obstore.store import (
        ClientConfig,
        RetryConfig,
        S3Config,
        S3Credential,
        S3CredentialProvider,
    )
    from obstore.store import ObjectStore as Backend

_CONNECT_MS_MAX = 5_000
_TIMEOUT_MS_DEFAULT = 30_000
_SCHEMES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder"
# The first one that is set counts.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_STYLE = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"
_WEB_IDENTITY = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach a store; None is as AWS's variables and files give."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    sign_payload: bool | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    request_timeout_ms: int | None = None


def open_store(
    url: str,
    options: StoreOptions | None = None,
    environment: Mapping[str, str] | None = None,
) -> ObjectStore:
    """Open a store without asking it anything; raise StoreRefused for a wrong address or option.

    `environment` has the process's variables; without it AWS's files are not read. Options count
    before AWS's variables, these before its files, and the machine's role is the last. Nothing
    written to a folder is synced: it is for tests and for machines that keep their power. Google
    and Azure take credentials from their own variables (GOOGLE_APPLICATION_CREDENTIALS,
    AZURE_STORAGE_ACCOUNT_NAME and others); a folder must exist.
    """
    # Here, because no broker without shared topics needs it.
    from obstore.exceptions import BaseError

    from odradek.storage.objects.obstore_store import ObstoreStore

    options = options or StoreOptions()
    parts = _checked(url, options)
    keys = None
    if parts.scheme == "s3":
        keys = _keys(options)
        if environment is not None:
            files = AwsFiles(environment)
            profile = files.profile()
            options = completed(options, environment, profile)
            _checked(url, options)
            keys = keys or _keys_of_files(environment, files, profile)
    try:
        backend = _backend(parts, options, keys)
    except (BaseError, OSError, ValueError) as error:
        raise StoreRefused(
            f"{url} cannot be opened ({type(error).__name__}); "
            "check the folder, or the account and the endpoint"
        ) from None
    return ObstoreStore(backend, url)


def completed(
    options: StoreOptions, environment: Mapping[str, str], profile: AwsProfile
) -> StoreOptions:
    """Return options with the endpoint, region and style of AWS's variables, or else its files."""
    path_style = options.path_style
    if path_style is None and not environment.get(_STYLE):
        path_style = profile.path_style
    return replace(
        options,
        endpoint=options.endpoint or _first(environment, _ENDPOINTS) or profile.endpoint,
        region=options.region or _first(environment, _REGIONS) or profile.region,
        path_style=path_style,
    )


def _checked(url: str, options: StoreOptions) -> SplitResult:
    parts = urlsplit(url)
    if "@" in parts.netloc or "@" in urlsplit(options.endpoint or "").netloc:
        raise StoreRefused("an object store's address must not hold a credential")
    is_named = bool(parts.netloc) if parts.scheme in ("s3", "gs", "az") else not parts.netloc
    if parts.scheme not in ("s3", "gs", "az", "file") or not is_named or parts.query:
        raise StoreRefused(f"{parts.scheme}://{parts.netloc} is no object store; use {_SCHEMES}")
    if parts.scheme != "s3":
        for one in fields(options):
            if one.name != "request_timeout_ms" and getattr(options, one.name) is not None:
                raise StoreRefused(f"{one.name} is for s3:// only; unset it for {url}")
    elif (options.access_key_id is None) != (options.secret_access_key is None):
        raise StoreRefused("an access key needs both its id and its secret; set both or none")
    return parts


def _backend(
    parts: SplitResult, options: StoreOptions, keys: S3CredentialProvider | None
) -> Backend:
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    if parts.scheme == "file":
        return LocalStore(unquote(parts.path))
    prefix = unquote(parts.path).strip("/") or None
    client = _client(options)
    # RetryingStore retries: the library would repeat a create and take its own object for
    # another's.
    never: RetryConfig = {"max_retries": 0}
    if parts.scheme == "gs":
        return GCSStore(parts.netloc, prefix=prefix, client_options=client, retry_config=never)
    if parts.scheme == "az":
        return AzureStore(parts.netloc, prefix=prefix, client_options=client, retry_config=never)
    config = _s3_config(parts.netloc, options)
    return S3Store(
        parts.netloc,
        prefix=prefix,
        config=config,
        client_options=client,
        retry_config=never,
        credential_provider=keys,
    )


def _s3_config(bucket: str, options: StoreOptions) -> S3Config:
    config: S3Config = {}
    if options.region is not None:
        config["region"] = options.region
    if options.path_style is not None:
        config["virtual_hosted_style_request"] = not options.path_style
    if options.endpoint is not None:
        endpoint = options.endpoint.rstrip("/")
        if options.path_style is False:  # the library takes such an endpoint as the bucket's own
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{bucket}.{host}"
        # Its variable, AWS_ENDPOINT_URL_S3, would win over `endpoint`.
        config["aws_endpoint_url_s3"] = endpoint
    config["unsigned_payload"] = not signs_payload(options)
    return config


def signs_payload(options: StoreOptions) -> bool:
    """Return whether the signature of a request covers the bytes of an object.

    By default only where TLS does not protect them, as with AWS's libraries: the SHA-256 takes
    most of the CPU time of an upload, here and in many a server.
    """
    if options.sign_payload is not None:
        return options.sign_payload
    return urlsplit(options.endpoint or "").scheme == "http"


def _client(options: StoreOptions) -> ClientConfig:
    timeout_ms = options.request_timeout_ms or _TIMEOUT_MS_DEFAULT
    return {
        "timeout": f"{timeout_ms}ms",
        "connect_timeout": f"{min(timeout_ms, _CONNECT_MS_MAX)}ms",
        # An endpoint without TLS was written as such, here or in AWS_ENDPOINT_URL.
        "allow_http": not (options.endpoint or "").startswith("https://"),
    }


def _keys(options: StoreOptions) -> S3CredentialProvider | None:
    """Return a provider of the options' key, without a session's token of AWS's variables."""
    if options.access_key_id is None or options.secret_access_key is None:
        return None
    credential: S3Credential = {
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "expires_at": None,
    }
    return lambda: credential


def _keys_of_files(
    environment: Mapping[str, str], files: AwsFiles, profile: AwsProfile
) -> S3CredentialProvider | None:
    """Return a provider of the profile's key, None if the library finds credentials by itself."""
    has_web_identity = all(environment.get(name) for name in _WEB_IDENTITY)
    if environment.get("AWS_ACCESS_KEY_ID") or (has_web_identity and not profile.has_role):
        return None
    key = profile.key()
    return None if key is None else KeyOfFiles(files, key)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)
