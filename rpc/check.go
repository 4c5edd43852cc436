package rpc

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// MaxText is how many bytes a name, an address or a reason that is stored may
// have, so that no record comes near the size that a transaction may have.
const MaxText = 1024

const maxEndpoints = 64 // listeners of a broker

func bad(format string, args ...any) error {
	return Error(cluster.InvalidRequest, nil, format, args...)
}

// text is a field of a request that is stored.
type text struct{ name, value string }

func checkTexts(fields ...text) error {
	for _, f := range fields {
		if len(f.value) > MaxText {
			return bad("%s of %d bytes, want at most %d", f.name, len(f.value), MaxText)
		}
	}
	return nil
}

// checkRegister reports what is wrong with a request by itself.
func checkRegister(r *pb.RegisterRequest) error {
	ttl := r.GetSessionTtlMs()
	_, scope := pb.MetadataScope_name[int32(r.GetMetadataScope())]
	switch {
	case r.GetBrokerId() < 0:
		return bad("broker id %d is negative", r.GetBrokerId())
	case r.GetNodeUuid() == "":
		return bad("no node uuid")
	case r.GetNonce() == "":
		return bad("no nonce")
	case len(r.GetControlAddress()) <= MaxText && !dialable(r.GetControlAddress()):
		return bad("control address %q is not host:port", r.GetControlAddress())
	case ttl != 0 && (ttl < MinSessionTTL.Milliseconds() || ttl > MaxSessionTTL.Milliseconds()):
		return bad("session TTL of %d ms is not between %v and %v", ttl, MinSessionTTL, MaxSessionTTL)
	case !scope:
		return bad("metadata scope %d is unknown", r.GetMetadataScope())
	case r.GetControllerEpoch() < 0:
		return bad("controller epoch %d is negative", r.GetControllerEpoch())
	case r.GetAddressVersion() < 0:
		return bad("address version %d is negative", r.GetAddressVersion())
	}
	if err := checkEndpoints(r.GetEndpoints()); err != nil {
		return err
	}
	return checkTexts(text{"node uuid", r.GetNodeUuid()}, text{"nonce", r.GetNonce()},
		text{"control address", r.GetControlAddress()}, text{"rack", r.GetRack()})
}

func checkEndpoints(endpoints []*pb.Endpoint) error {
	if n := len(endpoints); n > maxEndpoints {
		return bad("%d endpoints, want at most %d", n, maxEndpoints)
	}
	seen := map[string]bool{}
	for _, e := range endpoints {
		switch {
		case e.GetListener() == "" || e.GetAddress() == "":
			return bad("an endpoint needs a listener and an address, has %q and %q", e.GetListener(), e.GetAddress())
		case seen[e.GetListener()]:
			return bad("listener %q has two endpoints", e.GetListener())
		}
		seen[e.GetListener()] = true
		if err := checkTexts(text{"listener", e.GetListener()}, text{"address", e.GetAddress()}); err != nil {
			return err
		}
	}
	return nil
}

// checkCaller reports what is wrong with a broker's id and epochs by
// themselves.
func checkCaller(id int32, epochs ...int64) error {
	if id < 0 {
		return bad("broker id %d is negative", id)
	}
	for _, e := range epochs {
		if e < 0 {
			return bad("epoch %d is negative", e)
		}
	}
	return nil
}

// maxElections bounds the partitions that one request names.
const maxElections = 10_000

// maxElectionReason bounds a reason that is stored with each partition that it is
// given for, in bytes.
const maxElectionReason = 128

// checkElectLeaders reports what is wrong with a request by itself.
func checkElectLeaders(r *pb.ElectLeadersRequest) error {
	_, known := pb.ElectionType_name[int32(r.GetType())]
	designated := r.GetType() == pb.ElectionType_ELECTION_TYPE_DESIGNATED
	switch {
	case !known || r.GetType() == pb.ElectionType_ELECTION_TYPE_UNSPECIFIED:
		return bad("election type %d is unknown", r.GetType())
	case r.GetAll() && len(r.GetTopics()) > 0:
		return bad("the request names topics, and means all")
	case !r.GetAll() && len(r.GetTopics()) == 0:
		return bad("the request names no topic")
	case designated && r.GetAll():
		return bad("one broker cannot lead all partitions")
	case r.GetLeader() < 0:
		return bad("broker id %d is negative", r.GetLeader())
	case !designated && r.GetLeader() != 0:
		return bad("a leader is named, for an election that finds it itself")
	case len(r.GetReason()) > maxElectionReason:
		return bad("reason of %d bytes, want at most %d", len(r.GetReason()), maxElectionReason)
	}
	return checkPartitions(r.GetTopics())
}

// checkPartitions refuses partitions that are named more than once, or too many.
func checkPartitions(topics []*pb.TopicPartitions) error {
	named, seen := 0, map[string]bool{}
	for _, t := range topics {
		if seen[t.GetTopic()] {
			return bad("the request names topic %q more than once", t.GetTopic())
		}
		seen[t.GetTopic()] = true
		partitions := map[int32]bool{}
		for _, i := range t.GetPartitions() {
			if partitions[i] {
				return bad("the request names partition %d of topic %q more than once", i, t.GetTopic())
			}
			partitions[i] = true
		}
		if named += max(1, len(partitions)); named > maxElections {
			return bad("the request names more than %d partitions", maxElections)
		}
	}
	return nil
}

// maxAltered bounds the topics that one request changes the settings of.
const maxAltered = 1000

// checkAlterTopics reports what is wrong with a request by itself.
func checkAlterTopics(r *pb.AlterTopicsRequest) error {
	seen := map[string]bool{}
	for _, name := range r.GetTopics() {
		if seen[name] {
			return bad("the request names topic %q more than once", name)
		}
		seen[name] = true
	}
	switch {
	case len(seen) == 0:
		return bad("the request names no topic")
	case len(seen) > maxAltered:
		return bad("the request names %d topics, want at most %d", len(seen), maxAltered)
	case len(r.GetSet())+len(r.GetUnset()) == 0:
		return bad("the request changes nothing")
	}
	return checkTexts(text{"reason", r.GetReason()})
}

// checkAlterSettings reports what is wrong with a request by itself.
func checkAlterSettings(r *pb.AlterSettingsRequest) error {
	if len(r.GetSet())+len(r.GetUnset()) == 0 && r.Freeze == nil {
		return bad("the request changes nothing")
	}
	return checkTexts(text{"reason", r.GetReason()})
}

// maxPlaced bounds the partitions whose replicas one request for more partitions
// names: all of them are made by one plan.
const maxPlaced = 10_000

// checkCreatePartitions reports what is wrong with a request by itself.
func checkCreatePartitions(r *pb.CreatePartitionsRequest) error {
	placed := 0
	for _, t := range r.GetTopics() {
		placed += len(t.GetAssignments())
	}
	switch {
	case len(r.GetTopics()) == 0:
		return bad("the request names no topic")
	case len(r.GetTopics()) > maxAltered:
		return bad("the request names %d topics, want at most %d", len(r.GetTopics()), maxAltered)
	case placed > maxPlaced:
		return bad("the request names the replicas of %d partitions, want at most %d", placed, maxPlaced)
	}
	return checkTexts(text{"request id", r.GetRequestId()}, text{"reason", r.GetReason()})
}

// maxMoves bounds max.moves in a request, as the setting is bounded.
const maxMoves = 1 << 30

// checkReassignments reports what is wrong with a request by itself.
func checkReassignments(r *pb.AlterPartitionReassignmentsRequest) error {
	named := len(r.GetPartitions()) + len(r.GetTopics())
	switch {
	case named == 0 && !r.GetCancelAll():
		return bad("the request names no partition and no topic")
	case named > 0 && r.GetCancelAll():
		return bad("the request names partitions or topics, and cancels all")
	case len(r.GetPartitions()) > maxElections:
		return bad("the request names %d partitions, want at most %d", len(r.GetPartitions()), maxElections)
	case len(r.GetTopics()) > maxAltered:
		return bad("the request names %d topics, want at most %d", len(r.GetTopics()), maxAltered)
	case r.GetMaxMoves() < 0 || r.GetMaxMoves() > maxMoves:
		return bad("%d moves at once, want 0 to %d", r.GetMaxMoves(), maxMoves)
	case len(r.GetReason()) > maxElectionReason:
		return bad("reason of %d bytes, want at most %d", len(r.GetReason()), maxElectionReason)
	}
	topics := map[string]bool{}
	for _, t := range r.GetTopics() {
		if topics[t.GetTopic()] {
			return bad("the request names topic %q more than once", t.GetTopic())
		}
		topics[t.GetTopic()] = true
	}
	type one struct {
		topic     string
		partition int32
	}
	partitions := map[one]bool{}
	for _, p := range r.GetPartitions() {
		id := one{p.GetTopic(), p.GetPartition()}
		if partitions[id] || topics[p.GetTopic()] {
			return bad("the request names partition %d of topic %q more than once", p.GetPartition(), p.GetTopic())
		}
		partitions[id] = true
	}
	return nil
}
