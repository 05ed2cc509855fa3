"""The errors of the protocol: malformed bytes, and Kafka's error codes.

A response carries an error as an int16. `ErrorCode` has every code of Kafka 4.3, with a
sentence for people and whether a retry may help:

    ErrorCode(6).name, ErrorCode(6).sentence, ErrorCode(6).retriable
"""

from __future__ import annotations

from enum import IntEnum


class ProtocolError(Exception):
    """Bytes that are not a message: truncated, malformed, or past a bound."""


class HttpRequest(ProtocolError):
    """An HTTP request where one of Kafka's protocol was expected."""


_RETRIABLE = True


class ErrorCode(IntEnum):
    """An error that a response can carry: its number, a sentence, whether it is retriable.

    Source: org.apache.kafka.common.protocol.Errors; retriable where its exception is a
    RetriableException.
    """

    sentence: str
    retriable: bool

    def __new__(cls, number: int, sentence: str, retriable: bool = False) -> ErrorCode:
        """Create a member from a number, with its sentence and its retriability."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.sentence = sentence
        member.retriable = retriable
        return member

    @classmethod
    def of(cls, number: int) -> ErrorCode:
        """Return the code of a number; a code of a later version is UNKNOWN_SERVER_ERROR."""
        found = cls._value2member_map_.get(number)
        return found if isinstance(found, ErrorCode) else cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = (
        -1,
        "The server experienced an unexpected error when processing the request.",
    )
    NONE = 0, "Nothing went wrong."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside the log."
    CORRUPT_MESSAGE = (
        2,
        "A batch is damaged: bad CRC, bad size, or a record without key for a compacted topic.",
        _RETRIABLE,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host this topic-partition.", _RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size cannot be used."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "The broker does not lead the partition, or holds no replica of it.",
        _RETRIABLE,
    )
    REQUEST_TIMED_OUT = 7, "The request was not completed in time.", _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, "The replica asked for is not available.", _RETRIABLE
    MESSAGE_TOO_LARGE = 10, "A batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "Another controller has taken over since."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata stored with an offset is too large."
    NETWORK_EXCEPTION = 13, "The connection ended before the response came.", _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        "The coordinator is still reading its state from the log.",
        _RETRIABLE,
    )
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", _RETRIABLE
    NOT_COORDINATOR = 16, "Another broker coordinates this key.", _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not allowed, or it may not be used so."
    RECORD_LIST_TOO_LARGE = 18, "The batches are larger than a segment may be."
    NOT_ENOUGH_REPLICAS = (
        19,
        "Too few replicas are in sync, so nothing was written.",
        _RETRIABLE,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but to too few replicas.",
        _RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the bounds of the broker."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets are too large to be stored as one batch."
    TOPIC_AUTHORIZATION_FAILED = 29, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, "A record's timestamp is too far from the broker's clock."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker has not enabled this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request came out of turn in the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions cannot be used."
    INVALID_REPLICATION_FACTOR = 38, "There must be at least one replica, and a broker for each."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replicas cannot be put on these brokers."
    INVALID_CONFIG = 40, "A configuration has a value that is not allowed."
    NOT_CONTROLLER = 41, "Another node is the controller.", _RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or the API's rules."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The log's message format cannot do this."
    POLICY_VIOLATION = 44, "A policy of the broker forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch does not follow its producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch has been written before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the one last seen."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id belongs to another transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = (
        51,
        "The transactional id is still busy with its last operation.",
        _RETRIABLE,
    )
    TRANSACTION_COORDINATOR_FENCED = 52, "The marker's coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Transactional Id authorization failed."
    SECURITY_DISABLED = 54, "The broker has no authorizer."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk that holds the log failed.", _RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker is not configured with this log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, "The producer is unknown; its records may have expired."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition's replicas are already being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns nor may renew the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Tokens cannot be requested on such a connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Delegation Token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "Principals of this type are not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has forgotten the fetch session.", _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch.", _RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader does not listen on this listener.", _RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = (
        74,
        "The leader epoch in the request is older than the epoch on the broker.",
        _RETRIABLE,
    )
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's.", _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version of the API cannot carry the codec."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = (
        78,
        "The new leader does not know the high watermark yet.",
        _RETRIABLE,
    )
    MEMBER_ID_REQUIRED = 79, "Join again with the member id given here."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred replica cannot lead now.", _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over the group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica can lead the partition.", _RETRIABLE
    ELECTION_NOT_NEEDED = 84, "Leader election not needed for topic partition.", _RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition's replicas are not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still reads the topic."
    INVALID_RECORD = 87, "A record breaks the rules of its topic or of the format."
    UNSTABLE_OFFSET_COMMIT = 88, "An open transaction may still change the offset.", _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The client has used up its quota for now.", _RETRIABLE
    PRODUCER_FENCED = 90, "Another producer has taken over the transactional id."
    RESOURCE_NOT_FOUND = 91, "The resource that the request names does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "One of the two nodes is not a voter the other expects."
    INVALID_UPDATE_VERSION = 95, "The version to update from is not the current one."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be finalized."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "A forwarded request names no readable principal."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This server does not host this topic ID.", _RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker uses this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker has registered this id."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to another topic id.", _RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id is unknown."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "The fetch session mixes topic names and topic ids.",
        _RETRIABLE,
    )
    INELIGIBLE_REPLICA = 107, "A replica of the new ISR may not be in it."
    NEW_LEADER_ELECTED = 108, "The change was made, and the partition has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage only."
    FENCED_MEMBER_EPOCH = 110, "The member is fenced: give up its partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group has no such assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old; its next heartbeat gets the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, "A controller was asked for brokers, or the reverse."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "There is no such type of endpoint here."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or has changed."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it, and begin the next one."
    INVALID_RECORD_STATE = 121, "The record cannot be acknowledged in the state it is in."
    SHARE_SESSION_NOT_FOUND = 122, "The broker has forgotten the share session.", _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch.", _RETRIABLE
    FENCED_STATE_EPOCH = (
        124,
        "The share coordinator rejected the request because the share-group state epoch did not "
        "match.",
    )
    INVALID_VOTER_KEY = 125, "The voter key belongs to another replica."
    DUPLICATE_VOTER = 126, "The node is already a voter."
    VOTER_NOT_FOUND = 127, "The node is not a voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be parsed."
    REBOOTSTRAP_REQUIRED = 129, "The client must start over from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology cannot be used."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch cannot be used."
    STREAMS_TOPOLOGY_FENCED = 132, "A newer topology has taken over."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker can hold no more share sessions.", _RETRIABLE
