package cluster

import "google.golang.org/grpc/codes"

// Reason is Kafka's name of an error. It stands in the ErrorInfo of a gRPC
// status, in results of single topics and partitions, and in logs. Empty: no
// error.
type Reason string

// ErrorDomain is the domain of every ErrorInfo that carries a Reason.
const ErrorDomain = "controllerd"

// The epochs and the sender.
const (
	// StaleControllerEpoch: the sender was the active controller once.
	StaleControllerEpoch Reason = "STALE_CONTROLLER_EPOCH"
	// StaleBrokerEpoch: the broker has registered again since, or has to.
	StaleBrokerEpoch Reason = "STALE_BROKER_EPOCH"
	// FencedLeaderEpoch: the partition has had another election since.
	FencedLeaderEpoch Reason = "FENCED_LEADER_EPOCH"
	// NotController: this daemon is not the active one and could not forward.
	NotController Reason = "NOT_CONTROLLER"
)

// Brokers and their sessions.
const (
	// DuplicateBrokerRegistration: the broker id belongs to another node.
	DuplicateBrokerRegistration Reason = "DUPLICATE_BROKER_REGISTRATION"
	// Replaced: a newer process of the same node has taken the broker id.
	Replaced Reason = "REPLACED"
	// BrokerIDNotRegistered: no broker of that id is live.
	BrokerIDNotRegistered Reason = "BROKER_ID_NOT_REGISTERED"
	// InconsistentClusterID: the caller belongs to another cluster.
	InconsistentClusterID Reason = "INCONSISTENT_CLUSTER_ID"
	// KafkaStorageError: a log directory of the broker failed.
	KafkaStorageError Reason = "KAFKA_STORAGE_ERROR"
)

// Partition state.
const (
	// InvalidUpdateVersion: the partition epoch is not the newest.
	InvalidUpdateVersion Reason = "INVALID_UPDATE_VERSION"
	// IneligibleReplica: a member of the new ISR is not fit for it.
	IneligibleReplica Reason = "INELIGIBLE_REPLICA"
	// ElectionNotNeeded: the wanted leader leads already.
	ElectionNotNeeded Reason = "ELECTION_NOT_NEEDED"
	// PreferredLeaderNotAvailable: the first replica is not online or not in the
	// ISR.
	PreferredLeaderNotAvailable Reason = "PREFERRED_LEADER_NOT_AVAILABLE"
	// EligibleLeadersNotAvailable: no replica that may lead is online.
	EligibleLeadersNotAvailable Reason = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
	// NewLeaderElected: the change is done, and took the leadership from the
	// caller.
	NewLeaderElected Reason = "NEW_LEADER_ELECTED"
	// OperationNotAttempted: another part of the request failed first.
	OperationNotAttempted Reason = "OPERATION_NOT_ATTEMPTED"
)

// Topics.
const (
	// TopicAlreadyExists: the name is taken.
	TopicAlreadyExists Reason = "TOPIC_ALREADY_EXISTS"
	// UnknownTopicOrPartition: nothing of that name or index exists.
	UnknownTopicOrPartition Reason = "UNKNOWN_TOPIC_OR_PARTITION"
	// UnknownTopicID: nothing of that topic id exists.
	UnknownTopicID Reason = "UNKNOWN_TOPIC_ID"
	// InconsistentTopicID: the name belongs to another topic id.
	InconsistentTopicID Reason = "INCONSISTENT_TOPIC_ID"
	// InvalidTopicException: the name is not a legal one.
	InvalidTopicException Reason = "INVALID_TOPIC_EXCEPTION"
	// InvalidPartitions: the number of partitions is not possible.
	InvalidPartitions Reason = "INVALID_PARTITIONS"
	// InvalidReplicationFactor: the number of replicas is not possible.
	InvalidReplicationFactor Reason = "INVALID_REPLICATION_FACTOR"
	// InvalidReplicaAssignment: the brokers named for a partition do not do.
	InvalidReplicaAssignment Reason = "INVALID_REPLICA_ASSIGNMENT"
	// ReassignmentInProgress: a partition of the topic is being reassigned.
	ReassignmentInProgress Reason = "REASSIGNMENT_IN_PROGRESS"
	// NoReassignmentInProgress: the partition is not being reassigned.
	NoReassignmentInProgress Reason = "NO_REASSIGNMENT_IN_PROGRESS"
	// InvalidConfig: a setting has a value that is not legal, or is none of what
	// it is to be set for.
	InvalidConfig Reason = "INVALID_CONFIG"
	// TopicDeletionDisabled: a setting of the cluster forbids to delete topics.
	TopicDeletionDisabled Reason = "TOPIC_DELETION_DISABLED"
)

// Requests of any kind.
const (
	// InvalidRequest: the request makes no sense.
	InvalidRequest Reason = "INVALID_REQUEST"
	// RequestTimedOut: the outcome was not known in time.
	RequestTimedOut Reason = "REQUEST_TIMED_OUT"
	// PolicyViolation: a setting of the cluster forbids it.
	PolicyViolation Reason = "POLICY_VIOLATION"
	// ThrottlingQuotaExceeded: too much at once, try again later.
	ThrottlingQuotaExceeded Reason = "THROTTLING_QUOTA_EXCEEDED"
)

// reasonCodes are the gRPC codes of all reasons.
var reasonCodes = map[Reason]codes.Code{
	StaleControllerEpoch: codes.FailedPrecondition,
	StaleBrokerEpoch:     codes.FailedPrecondition,
	FencedLeaderEpoch:    codes.FailedPrecondition,
	NotController:        codes.Unavailable,

	DuplicateBrokerRegistration: codes.AlreadyExists,
	Replaced:                    codes.FailedPrecondition,
	BrokerIDNotRegistered:       codes.NotFound,
	InconsistentClusterID:       codes.FailedPrecondition,
	KafkaStorageError:           codes.Internal,

	InvalidUpdateVersion: codes.Aborted,
	IneligibleReplica:    codes.FailedPrecondition,
	ElectionNotNeeded:    codes.FailedPrecondition,
	NewLeaderElected:     codes.Aborted,

	PreferredLeaderNotAvailable: codes.FailedPrecondition,
	EligibleLeadersNotAvailable: codes.FailedPrecondition,

	OperationNotAttempted: codes.Aborted,

	TopicAlreadyExists:       codes.AlreadyExists,
	UnknownTopicOrPartition:  codes.NotFound,
	UnknownTopicID:           codes.NotFound,
	InconsistentTopicID:      codes.FailedPrecondition,
	InvalidTopicException:    codes.InvalidArgument,
	InvalidPartitions:        codes.InvalidArgument,
	InvalidReplicationFactor: codes.InvalidArgument,
	InvalidReplicaAssignment: codes.InvalidArgument,
	ReassignmentInProgress:   codes.FailedPrecondition,
	NoReassignmentInProgress: codes.FailedPrecondition,
	InvalidConfig:            codes.InvalidArgument,
	TopicDeletionDisabled:    codes.FailedPrecondition,

	InvalidRequest:          codes.InvalidArgument,
	RequestTimedOut:         codes.DeadlineExceeded,
	PolicyViolation:         codes.FailedPrecondition,
	ThrottlingQuotaExceeded: codes.ResourceExhausted,
}

// Code is the gRPC code that goes with the reason: OK for the empty one,
// UNKNOWN for one that is not listed here.
func (r Reason) Code() codes.Code {
	if r == "" {
		return codes.OK
	}
	if c, ok := reasonCodes[r]; ok {
		return c
	}
	return codes.Unknown
}
