"""Errors of the library obstore, as those of the object store's contract.

The library's texts hold whole requests and answers, and S3 repeats a key's id in its own: a text
here has only the operation, the address, the status and S3's code.
"""

import errno
import re

from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectStoreError,
    StoreRefused,
    StoreUnavailable,
)

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\b(AccessDenied|InvalidRange)\b")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# The answer to HEAD has no code. A status 404 has others as well, such as NoSuchBucket.
_MISSING_CODES = {None, "NoSuchKey", "BlobNotFound", "ResourceNotFound"}
# Other writers of the key are under way: S3 asks for the same request again.
_CONFLICTS = {"ConditionalRequestConflict", "OperationAborted"}
_RETRIABLE_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_RETRIABLE_CODES = {"RequestTimeout", "InternalError", "SlowDown", "ServiceUnavailable"}
_RETRIABLE_OS_ERRORS = {
    errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip
_REMEDIES = {
    "AccessDenied": "allow the key to get, put, delete and list objects in this bucket",
    "AuthorizationHeaderMalformed": "set the region of the bucket",
    "ContainerNotFound": "create the container, or correct its name",
    "ExpiredToken": "renew the session's token",
    "InvalidAccessKeyId": "check the access key's id",
    "NoSuchBucket": "create the bucket, or correct its name",
    "NotImplemented": "use a store that has conditional writes",
    "PermanentRedirect": "set the region of the bucket",
    "QuotaExceeded": "raise the quota, or free space",
    "RequestTimeTooSkewed": "set this machine's clock",
    "SignatureDoesNotMatch": "check the secret access key, and this machine's clock",
}
_METADATA_SERVICE = "169.254.169.254"


def failure_of(operation: str, address: str, error: Exception) -> ObjectStoreError:
    """Return the contract's error for one of obstore's; address is that of the object or store."""
    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    found = _CODE.search(text)
    code = (found[1] or found[2]) if found else None
    where = f"{operation} {address}"
    kind = type(error).__name__
    if code in _CONFLICTS:
        return StoreUnavailable(f"{where}: another request for it is under way ({code})")
    if kind == "AlreadyExistsError":
        return ObjectExists(f"{where}: the object exists already")
    if kind in ("FileNotFoundError", "NotFoundError") and code in _MISSING_CODES:
        return ObjectMissing(f"{where}: there is no such object")
    if status == 416 or code == "InvalidRange":
        return ObjectDamaged(f"{where}: the object is too short")
    if "LocalFileSystem" in text:
        return _local(where, text)
    if status is None and code is None and kind == "GenericError":
        return StoreUnavailable(f"{where}: {_reason(text)}")
    detail = " ".join(str(part) for part in ("status", status, code) if part is not None)
    if status in _RETRIABLE_STATUSES or code in _RETRIABLE_CODES:
        return StoreUnavailable(f"{where}: {detail}")
    remedy = _REMEDIES.get(code or "")
    if _METADATA_SERVICE in text:
        remedy = "set an access key: the machine's metadata service gives none"
    elif remedy is None and (status in (401, 403) or kind == "UnauthenticatedError"):
        remedy = "check the access key, its secret and its permissions"
    return StoreRefused(
        f"{where}: refused ({detail}); {remedy or 'check the address, the bucket and the region'}"
    )


def _local(where: str, text: str) -> ObjectStoreError:
    found = _OS_ERROR.search(text)
    number = int(found[1]) if found else 0
    reason = errno.errorcode.get(number, "the file system failed")
    if number in _RETRIABLE_OS_ERRORS:
        return StoreUnavailable(f"{where}: {reason}")
    return StoreRefused(f"{where}: {reason}; check the folder, its permissions and its space")


def _reason(text: str) -> str:
    if "kind: Timeout," in text:
        return "no answer in time"
    if "kind: Connect," in text:
        return "no connection; check the endpoint and that the store runs"
    return "the connection failed"
