"""Opens the object store that a URL names."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

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


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach a store; None is as AWS's variables (AWS_REGION and others) give."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    request_timeout_ms: int | None = None


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """Open a store without asking it anything; raise StoreRefused for a wrong address or option.

    Nothing written to a folder is synced: it is for tests and for machines that keep their power.
    Google and Azure take credentials from their own variables (GOOGLE_APPLICATION_CREDENTIALS,
    AZURE_STORAGE_ACCOUNT_NAME and others); a folder must exist.
    """
    # Here, because no broker without shared topics needs it.
    from obstore.exceptions import BaseError

    from odradek.storage.objects.obstore_store import ObstoreStore

    options = options or StoreOptions()
    parts = _checked(url, options)
    try:
        backend = _backend(parts, options)
    except (BaseError, OSError, ValueError) as error:
        raise StoreRefused(
            f"{url} cannot be opened ({type(error).__name__}); "
            "check the folder, or the account and the endpoint"
        ) from None
    return ObstoreStore(backend, url)


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


def _backend(parts: SplitResult, options: StoreOptions) -> Backend:
    from obstore.store import AzureStore, GCSStore, LocalStore

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
    return _s3(parts, prefix, options, client, never)


def _s3(
    parts: SplitResult,
    prefix: str | None,
    options: StoreOptions,
    client: ClientConfig,
    retry: RetryConfig,
) -> Backend:
    from obstore.store import S3Store

    config: S3Config = {}
    if options.region is not None:
        config["region"] = options.region
    if options.path_style is not None:
        config["virtual_hosted_style_request"] = not options.path_style
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint.rstrip("/")
        if options.path_style is False:  # the library takes such an endpoint as the bucket's own
            scheme, _, host = config["endpoint"].partition("://")
            config["endpoint"] = f"{scheme}://{parts.netloc}.{host}"
    return S3Store(
        parts.netloc,
        prefix=prefix,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=_keys(options),
    )


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
