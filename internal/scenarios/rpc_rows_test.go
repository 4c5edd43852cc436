package scenarios

import (
	"context"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// row is one request with a bad value in one field, and what is to come of it.
type row struct {
	what    string
	request proto.Message
	want    string
	// decided: only the active daemon can tell, so that one that was deposed
	// says NOT_CONTROLLER.
	decided bool
}

// rows are those of all RPCs, by name and by the path of the field.
type rows struct {
	s  *seats
	of map[string]map[string][]row

	session *pb.RegisterResponse // of broker 1; there are brokers 1 to 3
	topic   cluster.TopicID      // "orders", two partitions on all three brokers
	state   *pb.PartitionRecord  // of its partition 0
	leader  *pb.RegisterResponse // the session of that one's leader
}

const (
	ok           = "OK"
	invalid      = string(cluster.InvalidRequest)
	staleBroker  = string(cluster.StaleBrokerEpoch)
	otherCluster = string(cluster.InconsistentClusterID)
)

var huge = strings.Repeat("x", 256<<10)

func newRows(s *seats) *rows {
	r := &rows{s: s, of: map[string]map[string][]row{}}
	r.prepare()
	r.register()
	r.sessions()
	r.alterPartition()
	r.createTopics()
	r.deleteTopics()
	r.electLeaders()
	r.pages()
	for _, name := range []string{"ListBrokers", "DescribeController", "ListControllers", "DescribeSettings"} {
		r.of[name] = map[string][]row{} // their requests are empty
	}
	return r
}

// add adds a row: valid, but for one change.
func add[M proto.Message](r *rows, rpc, path, what string, valid M, change func(M), want string, decided bool) {
	req := proto.Clone(valid).(M)
	change(req)
	if r.of[rpc] == nil {
		r.of[rpc] = map[string][]row{}
	}
	r.of[rpc][path] = append(r.of[rpc][path], row{what, req, want, decided})
}

// registration is that of a broker, the same each time.
func registration(id int32) *pb.RegisterRequest {
	return &pb.RegisterRequest{
		BrokerId: id, NodeUuid: fmt.Sprint("node-", id), Nonce: fmt.Sprint("nonce-", id), First: true, ControlAddress: "127.0.0.1:1",
		Endpoints: []*pb.Endpoint{{Listener: "data", Address: "h:1"}}, SessionTtlMs: 60_000,
	}
}

// prepare makes three brokers and a topic.
func (r *rows) prepare() {
	t := r.s.t
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	sessions := map[int32]*pb.RegisterResponse{}
	for id := int32(1); id <= 3; id++ {
		resp, err := pb.NewBrokerServiceClient(r.s.conns["first"]).Register(ctx, registration(id))
		if err != nil {
			t.Fatal(err)
		}
		sessions[id] = resp
	}
	admin := pb.NewAdminServiceClient(r.s.conns["first"])
	created, err := admin.CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "orders", Partitions: 2, ReplicationFactor: 3}}})
	if err != nil || created.GetResults()[0].GetError() != "" {
		t.Fatal(created, err)
	}
	described, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	r.session, r.topic = sessions[1], cluster.TopicID(created.GetResults()[0].GetTopicId())
	r.state = described.GetPartitions()[0]
	r.leader = sessions[r.state.GetLeader()]
	for _, id := range []string{"first", "second"} {
		if !poll(soon, func() bool { return r.s.view(id).Pending == 4 }) {
			t.Fatalf("daemon %s does not see the brokers and the topic", id)
		}
	}
}

// register: the valid request is that of a process that is registered, so it
// writes nothing.
func (r *rows) register() {
	valid := registration(1)
	row := func(path, what, want string, change func(*pb.RegisterRequest)) {
		add(r, "Register", path, what, valid, change, want, false)
	}
	row("cluster_uuid", "of another cluster", otherCluster, func(q *pb.RegisterRequest) { q.ClusterUuid = "x" })
	row("cluster_uuid", "huge", otherCluster, func(q *pb.RegisterRequest) { q.ClusterUuid = huge })
	row("broker_id", "negative", invalid, func(q *pb.RegisterRequest) { q.BrokerId = -1 })
	row("broker_id", "of another node", string(cluster.DuplicateBrokerRegistration), func(q *pb.RegisterRequest) { q.BrokerId = 2 })
	row("node_uuid", "empty", invalid, func(q *pb.RegisterRequest) { q.NodeUuid = "" })
	row("node_uuid", "huge", invalid, func(q *pb.RegisterRequest) { q.NodeUuid = huge })
	row("node_uuid", "another", string(cluster.DuplicateBrokerRegistration), func(q *pb.RegisterRequest) { q.NodeUuid = "x" })
	row("nonce", "empty", invalid, func(q *pb.RegisterRequest) { q.Nonce = "" })
	row("nonce", "huge", invalid, func(q *pb.RegisterRequest) { q.Nonce = huge })
	row("first", "false, of an older process", string(cluster.Replaced), func(q *pb.RegisterRequest) { q.First, q.Nonce = false, "older" })
	row("first", "false, repeated", ok, func(q *pb.RegisterRequest) { q.First = false })
	row("control_address", "empty", invalid, func(q *pb.RegisterRequest) { q.ControlAddress = "" })
	row("control_address", "huge", invalid, func(q *pb.RegisterRequest) { q.ControlAddress = huge })
	row("endpoints", "65 of them", invalid, func(q *pb.RegisterRequest) {
		for i := range 65 {
			q.Endpoints = append(q.Endpoints, &pb.Endpoint{Listener: fmt.Sprint(i), Address: "h:1"})
		}
	})
	row("endpoints", "duplicate", invalid, func(q *pb.RegisterRequest) { q.Endpoints = append(q.Endpoints, q.Endpoints[0]) })
	row("endpoints.listener", "empty", invalid, func(q *pb.RegisterRequest) { q.Endpoints[0].Listener = "" })
	row("endpoints.listener", "huge", invalid, func(q *pb.RegisterRequest) { q.Endpoints[0].Listener = huge })
	row("endpoints.address", "empty", invalid, func(q *pb.RegisterRequest) { q.Endpoints[0].Address = "" })
	row("endpoints.address", "huge", invalid, func(q *pb.RegisterRequest) { q.Endpoints[0].Address = huge })
	row("rack", "huge", invalid, func(q *pb.RegisterRequest) { q.Rack = huge })
	row("session_ttl_ms", "negative", invalid, func(q *pb.RegisterRequest) { q.SessionTtlMs = -1 })
	row("session_ttl_ms", "too short", invalid, func(q *pb.RegisterRequest) { q.SessionTtlMs = 3999 })
	row("session_ttl_ms", "too long", invalid, func(q *pb.RegisterRequest) { q.SessionTtlMs = 60_001 })
	row("session_ttl_ms", "huge", invalid, func(q *pb.RegisterRequest) { q.SessionTtlMs = math.MaxInt64 })
	row("death_probe", "changed in a repetition", ok, func(q *pb.RegisterRequest) { q.DeathProbe = true })
	row("metadata_scope", "unknown", invalid, func(q *pb.RegisterRequest) { q.MetadataScope = 99 })
	row("metadata_scope", "negative", invalid, func(q *pb.RegisterRequest) { q.MetadataScope = -1 })
	row("controller_epoch", "negative", invalid, func(q *pb.RegisterRequest) { q.ControllerEpoch = -1 })
	row("controller_epoch", "huge", ok, func(q *pb.RegisterRequest) { q.ControllerEpoch = math.MaxInt64 })
	row("address_version", "negative", invalid, func(q *pb.RegisterRequest) { q.AddressVersion = -1 })
	row("address_version", "of before, with another address", ok, func(q *pb.RegisterRequest) { q.ControlAddress = "127.0.0.1:2" })
}

func (r *rows) sessions() {
	be := r.session.GetBrokerEpoch()
	shut := func(path, what, want string, change func(*pb.ControlledShutdownRequest), decided bool) {
		add(r, "ControlledShutdown", path, what, &pb.ControlledShutdownRequest{BrokerId: 1, BrokerEpoch: be}, change, want, decided)
	}
	shut("cluster_uuid", "of another cluster", otherCluster, func(q *pb.ControlledShutdownRequest) { q.ClusterUuid = "x" }, false)
	shut("broker_id", "negative", invalid, func(q *pb.ControlledShutdownRequest) { q.BrokerId = -1 }, false)
	shut("broker_id", "unknown", staleBroker, func(q *pb.ControlledShutdownRequest) { q.BrokerId = 99 }, true)
	shut("broker_epoch", "none", staleBroker, func(q *pb.ControlledShutdownRequest) { q.BrokerEpoch = 0 }, true)
	shut("broker_epoch", "negative", invalid, func(q *pb.ControlledShutdownRequest) { q.BrokerEpoch = -1 }, false)
	shut("broker_epoch", "stale", staleBroker, func(q *pb.ControlledShutdownRequest) { q.BrokerEpoch-- }, true)
	shut("broker_epoch", "in the future", string(cluster.RequestTimedOut), func(q *pb.ControlledShutdownRequest) { q.BrokerEpoch = math.MaxInt64 }, false)
	renew := &pb.RenewSessionRequest{BrokerId: 1, BrokerEpoch: be, Lease: r.session.GetLease(), Nonce: "nonce-1"}
	row := func(path, what, want string, change func(*pb.RenewSessionRequest)) {
		add(r, "RenewSession", path, what, renew, change, want, false)
	}
	row("cluster_uuid", "of another cluster", otherCluster, func(q *pb.RenewSessionRequest) { q.ClusterUuid = "x" })
	row("broker_id", "negative", invalid, func(q *pb.RenewSessionRequest) { q.BrokerId = -1 })
	row("broker_id", "unknown", staleBroker, func(q *pb.RenewSessionRequest) { q.BrokerId = 99 })
	row("broker_id", "of another broker", string(cluster.Replaced), func(q *pb.RenewSessionRequest) { q.BrokerId = 2 })
	row("broker_epoch", "none", staleBroker, func(q *pb.RenewSessionRequest) { q.BrokerEpoch = 0 })
	row("broker_epoch", "negative", invalid, func(q *pb.RenewSessionRequest) { q.BrokerEpoch = -1 })
	row("broker_epoch", "stale", staleBroker, func(q *pb.RenewSessionRequest) { q.BrokerEpoch-- })
	row("broker_epoch", "in the future", string(cluster.RequestTimedOut), func(q *pb.RenewSessionRequest) { q.BrokerEpoch = math.MaxInt64 })
	row("lease", "none", staleBroker, func(q *pb.RenewSessionRequest) { q.Lease = 0 })
	row("lease", "unknown", staleBroker, func(q *pb.RenewSessionRequest) { q.Lease = math.MaxInt64 })
	row("lease", "negative", staleBroker, func(q *pb.RenewSessionRequest) { q.Lease = -1 })
	row("lease", "of another broker", staleBroker, func(q *pb.RenewSessionRequest) { q.Lease++ })
	row("nonce", "empty", string(cluster.Replaced), func(q *pb.RenewSessionRequest) { q.Nonce = "" })
	row("nonce", "of another process", string(cluster.Replaced), func(q *pb.RenewSessionRequest) { q.Nonce = huge })
	row("controller_epoch", "negative", invalid, func(q *pb.RenewSessionRequest) { q.ControllerEpoch = -1 })
	row("controller_epoch", "huge", ok, func(q *pb.RenewSessionRequest) { q.ControllerEpoch = math.MaxInt64 })

	gone := &pb.UnregisterRequest{BrokerId: 1, BrokerEpoch: be - 1, Nonce: "nonce-1"} // stale by itself: a valid one would be obeyed
	leave := func(path, what, want string, change func(*pb.UnregisterRequest)) {
		add(r, "Unregister", path, what, gone, change, want, false)
	}
	leave("cluster_uuid", "of another cluster", otherCluster, func(q *pb.UnregisterRequest) { q.ClusterUuid = "x" })
	leave("broker_id", "negative", invalid, func(q *pb.UnregisterRequest) { q.BrokerId = -1 })
	leave("broker_id", "unknown", staleBroker, func(q *pb.UnregisterRequest) { q.BrokerId = 99 })
	leave("broker_epoch", "none", staleBroker, func(q *pb.UnregisterRequest) { q.BrokerEpoch = 0 })
	leave("broker_epoch", "negative", invalid, func(q *pb.UnregisterRequest) { q.BrokerEpoch = -1 })
	leave("broker_epoch", "stale", staleBroker, func(*pb.UnregisterRequest) {})
	leave("broker_epoch", "in the future", string(cluster.RequestTimedOut), func(q *pb.UnregisterRequest) { q.BrokerEpoch = math.MaxInt64 })
	leave("nonce", "empty", string(cluster.Replaced), func(q *pb.UnregisterRequest) { q.BrokerEpoch, q.Nonce = be, "" })
	leave("nonce", "of another process", string(cluster.Replaced), func(q *pb.UnregisterRequest) { q.BrokerEpoch, q.Nonce = be, huge })
}

// alterPartition: the valid request says what is so already, but for a row
// that changes the ISR too.
func (r *rows) alterPartition() {
	p := r.state
	entry := &pb.AlterPartitionEntry{Partition: 0, LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch()}
	for _, id := range p.GetIsr() {
		entry.NewIsr = append(entry.NewIsr, &pb.IsrMember{BrokerId: id, BrokerEpoch: -1})
	}
	valid := &pb.AlterPartitionRequest{
		BrokerId: p.GetLeader(), BrokerEpoch: r.leader.GetBrokerEpoch(),
		Topics: []*pb.AlterPartitionTopic{{TopicId: r.topic[:], Partitions: []*pb.AlterPartitionEntry{entry}}},
	}
	early := func(path, what, want string, change func(*pb.AlterPartitionRequest)) {
		add(r, "AlterPartition", path, what, valid, change, want, false)
	}
	row := func(path, what, want string, change func(*pb.AlterPartitionRequest)) {
		add(r, "AlterPartition", path, what, valid, change, want, true)
	}
	one := func(path, what, want string, change func(*pb.AlterPartitionEntry)) {
		row(path, what, want, func(q *pb.AlterPartitionRequest) { change(q.Topics[0].Partitions[0]) })
	}
	early("cluster_uuid", "of another cluster", otherCluster, func(q *pb.AlterPartitionRequest) { q.ClusterUuid = "x" })
	early("cluster_uuid", "huge", otherCluster, func(q *pb.AlterPartitionRequest) { q.ClusterUuid = huge })
	early("broker_id", "negative", invalid, func(q *pb.AlterPartitionRequest) { q.BrokerId = -1 })
	row("broker_id", "unknown", staleBroker, func(q *pb.AlterPartitionRequest) { q.BrokerId = 99 })
	row("broker_epoch", "none", staleBroker, func(q *pb.AlterPartitionRequest) { q.BrokerEpoch = 0 })
	early("broker_epoch", "negative", invalid, func(q *pb.AlterPartitionRequest) { q.BrokerEpoch = -1 })
	row("broker_epoch", "stale", staleBroker, func(q *pb.AlterPartitionRequest) { q.BrokerEpoch-- })
	row("broker_epoch", "in the future", staleBroker, func(q *pb.AlterPartitionRequest) { q.BrokerEpoch = math.MaxInt64 })
	row("topics", "none", ok, func(q *pb.AlterPartitionRequest) { q.Topics = nil })
	row("topics", "duplicate", ok, func(q *pb.AlterPartitionRequest) { q.Topics = append(q.Topics, q.Topics[0]) }) // changes nothing, twice
	row("topics.topic_id", "empty", string(cluster.UnknownTopicID), func(q *pb.AlterPartitionRequest) { q.Topics[0].TopicId = nil })
	row("topics.topic_id", "too short", string(cluster.UnknownTopicID), func(q *pb.AlterPartitionRequest) { q.Topics[0].TopicId = r.topic[:15] })
	row("topics.topic_id", "huge", string(cluster.UnknownTopicID), func(q *pb.AlterPartitionRequest) { q.Topics[0].TopicId = []byte(huge) })
	row("topics.topic_id", "unknown", string(cluster.UnknownTopicID), func(q *pb.AlterPartitionRequest) { q.Topics[0].TopicId = make([]byte, 16) })
	row("topics.partitions", "duplicate", ok, func(q *pb.AlterPartitionRequest) { // changes nothing, twice
		q.Topics[0].Partitions = append(q.Topics[0].Partitions, q.Topics[0].Partitions[0])
	})
	row("topics.partitions", "none", ok, func(q *pb.AlterPartitionRequest) { q.Topics[0].Partitions = nil })
	unknown := string(cluster.UnknownTopicOrPartition)
	one("topics.partitions.partition", "negative", unknown, func(e *pb.AlterPartitionEntry) { e.Partition = -1 })
	one("topics.partitions.partition", "unknown", unknown, func(e *pb.AlterPartitionEntry) { e.Partition = 2 })
	one("topics.partitions.partition", "huge", unknown, func(e *pb.AlterPartitionEntry) { e.Partition = math.MaxInt32 })
	one("topics.partitions.leader_epoch", "stale", string(cluster.FencedLeaderEpoch), func(e *pb.AlterPartitionEntry) { e.LeaderEpoch-- })
	one("topics.partitions.leader_epoch", "ahead", string(cluster.NotController), func(e *pb.AlterPartitionEntry) { e.LeaderEpoch++ })
	shrink := func(e *pb.AlterPartitionEntry) {
		e.NewIsr = []*pb.IsrMember{{BrokerId: p.GetLeader(), BrokerEpoch: -1}}
	}
	one("topics.partitions.partition_epoch", "stale", string(cluster.InvalidUpdateVersion), func(e *pb.AlterPartitionEntry) { shrink(e); e.PartitionEpoch-- })
	one("topics.partitions.partition_epoch", "ahead", string(cluster.NotController), func(e *pb.AlterPartitionEntry) { e.PartitionEpoch++ })
	one("topics.partitions.new_isr", "empty", invalid, func(e *pb.AlterPartitionEntry) { e.NewIsr = nil })
	one("topics.partitions.new_isr", "duplicate", invalid, func(e *pb.AlterPartitionEntry) { e.NewIsr = append(e.NewIsr, e.NewIsr[0]) })
	one("topics.partitions.new_isr", "huge", invalid, func(e *pb.AlterPartitionEntry) {
		for i := range int32(200_000) {
			e.NewIsr = append(e.NewIsr, &pb.IsrMember{BrokerId: i, BrokerEpoch: -1})
		}
	})
	one("topics.partitions.new_isr", "without the leader", invalid, func(e *pb.AlterPartitionEntry) { e.NewIsr = e.NewIsr[1:] })
	one("topics.partitions.new_isr.broker_id", "negative", invalid, func(e *pb.AlterPartitionEntry) { e.NewIsr[1].BrokerId = -1 })
	one("topics.partitions.new_isr.broker_id", "no replica", invalid, func(e *pb.AlterPartitionEntry) { e.NewIsr[1].BrokerId = 99 })
	one("topics.partitions.new_isr.broker_epoch", "stale", string(cluster.IneligibleReplica), func(e *pb.AlterPartitionEntry) { shrink(e); e.NewIsr[0].BrokerEpoch = 1 })
	one("topics.partitions.new_isr.broker_epoch", "in the future", string(cluster.IneligibleReplica), func(e *pb.AlterPartitionEntry) { shrink(e); e.NewIsr[0].BrokerEpoch = math.MaxInt64 })
	one("topics.partitions.recovery", "unknown", invalid, func(e *pb.AlterPartitionEntry) { e.Recovery = 99 })
	one("topics.partitions.recovery", "back again", invalid, func(e *pb.AlterPartitionEntry) {
		shrink(e)
		e.Recovery = pb.RecoveryState_RECOVERY_STATE_RECOVERING
	})
}

func (r *rows) createTopics() {
	valid := &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "new", Partitions: 1, ReplicationFactor: 1}}}
	early := func(path, what, want string, change func(*pb.CreateTopicsRequest)) {
		add(r, "CreateTopics", path, what, valid, change, want, false)
	}
	one := func(path, what string, want cluster.Reason, change func(*pb.NewTopic)) {
		add(r, "CreateTopics", "topics."+path, what, valid, func(q *pb.CreateTopicsRequest) { change(q.Topics[0]) }, string(want), true)
	}
	early("topics", "none", invalid, func(q *pb.CreateTopicsRequest) { q.Topics = nil })
	add(r, "CreateTopics", "topics", "duplicate", valid, func(q *pb.CreateTopicsRequest) {
		q.Topics[0].Name = "orders" // none of them may be made
		q.Topics = append(q.Topics, q.Topics[0])
	}, invalid, true)
	topics := func(what string, want cluster.Reason, topics ...*pb.NewTopic) {
		add(r, "CreateTopics", "topics", what, valid, func(q *pb.CreateTopicsRequest) { q.Topics = topics }, string(want), true)
	}
	topics("that collide", cluster.InvalidRequest, &pb.NewTopic{Name: "a.b", Partitions: 1, ReplicationFactor: 1}, &pb.NewTopic{Name: "a_b", Partitions: 1, ReplicationFactor: 1})
	var large []*pb.NewTopic
	for i := range 3 {
		large = append(large, &pb.NewTopic{Name: fmt.Sprint("large-", i), Partitions: 100_000, ReplicationFactor: 1})
	}
	topics("above the limit of a request", cluster.PolicyViolation, large...)
	early("reason", "huge", invalid, func(q *pb.CreateTopicsRequest) { q.Reason = huge })
	early("request_id", "huge", invalid, func(q *pb.CreateTopicsRequest) { q.RequestId = huge })
	one("name", "empty", cluster.InvalidTopicException, func(n *pb.NewTopic) { n.Name = "" })
	one("name", "huge", cluster.InvalidTopicException, func(n *pb.NewTopic) { n.Name = huge })
	one("name", "a way out", cluster.InvalidTopicException, func(n *pb.NewTopic) { n.Name = "../cluster" })
	one("name", "taken", cluster.TopicAlreadyExists, func(n *pb.NewTopic) { n.Name = "orders" })
	one("partitions", "none", cluster.InvalidPartitions, func(n *pb.NewTopic) { n.Partitions = 0 })
	one("partitions", "negative", cluster.InvalidPartitions, func(n *pb.NewTopic) { n.Partitions = -1 })
	one("partitions", "above the limit", cluster.PolicyViolation, func(n *pb.NewTopic) { n.Partitions = 100_001 })
	one("partitions", "above what can be", cluster.InvalidPartitions, func(n *pb.NewTopic) { n.Partitions = cluster.MaxPartitions + 1 })
	one("partitions", "huge", cluster.InvalidPartitions, func(n *pb.NewTopic) { n.Partitions = math.MaxInt32 })
	one("replication_factor", "none", cluster.InvalidReplicationFactor, func(n *pb.NewTopic) { n.ReplicationFactor = 0 })
	one("replication_factor", "negative", cluster.InvalidReplicationFactor, func(n *pb.NewTopic) { n.ReplicationFactor = -1 })
	one("replication_factor", "above the brokers", cluster.InvalidReplicationFactor, func(n *pb.NewTopic) { n.ReplicationFactor = 4 })
	one("replication_factor", "huge", cluster.InvalidReplicationFactor, func(n *pb.NewTopic) { n.ReplicationFactor = math.MaxInt32 })
	add(r, "CreateTopics", "validate_only", "set", valid, func(q *pb.CreateTopicsRequest) { q.ValidateOnly = true }, ok, true)
	assigned := func(lists ...[]int32) func(*pb.NewTopic) {
		return func(n *pb.NewTopic) {
			n.Partitions, n.ReplicationFactor = 0, 0
			for _, replicas := range lists {
				n.Assignments = append(n.Assignments, &pb.ReplicaAssignment{Replicas: replicas})
			}
		}
	}
	one("assignments", "of unlike length", cluster.InvalidReplicaAssignment, assigned([]int32{0, 1}, []int32{2}))
	one("assignments", "beside a negative number", cluster.InvalidRequest, func(n *pb.NewTopic) {
		assigned([]int32{1}, []int32{2})(n)
		n.ReplicationFactor = -2
	})
	one("assignments", "against the numbers", cluster.InvalidRequest, func(n *pb.NewTopic) {
		assigned([]int32{0}, []int32{1})(n)
		n.Partitions = 3
	})
	one("assignments.replicas", "huge", cluster.InvalidReplicaAssignment, func(n *pb.NewTopic) {
		replicas := make([]int32, 1_000_000) // compared each with each they would cost the active its seat
		for i := range replicas {
			replicas[i] = int32(i)
		}
		assigned(replicas)(n)
	})
	one("assignments.replicas", "none", cluster.InvalidReplicaAssignment, assigned([]int32{0}, nil))
	one("assignments.replicas", "duplicate", cluster.InvalidReplicaAssignment, assigned([]int32{1, 1}))
	one("assignments.replicas", "negative", cluster.InvalidReplicaAssignment, assigned([]int32{-1}))
	one("assignments.replicas", "unknown", cluster.InvalidReplicaAssignment, assigned([]int32{99}))
	one("block_size", "negative", cluster.InvalidRequest, func(n *pb.NewTopic) { n.BlockSize = -1 })
	one("block_size", "huge", cluster.InvalidRequest, func(n *pb.NewTopic) { n.BlockSize = math.MaxInt32 })
	one("config", "without a name", cluster.InvalidConfig, func(n *pb.NewTopic) { n.Config = map[string]string{"": "v"} })
	one("config", "huge", cluster.InvalidConfig, func(n *pb.NewTopic) { n.Config = map[string]string{"k": huge} })
}

func (r *rows) deleteTopics() {
	one := func(path, what string, want cluster.Reason, topics ...*pb.TopicToDelete) {
		add(r, "DeleteTopics", path, what, &pb.DeleteTopicsRequest{}, func(q *pb.DeleteTopicsRequest) { q.Topics = topics }, string(want), true)
	}
	unknown := []*pb.TopicToDelete{{Name: "x"}}
	add(r, "DeleteTopics", "topics", "none", &pb.DeleteTopicsRequest{Topics: unknown}, func(q *pb.DeleteTopicsRequest) { q.Topics = nil }, invalid, false)
	add(r, "DeleteTopics", "reason", "huge", &pb.DeleteTopicsRequest{Topics: unknown}, func(q *pb.DeleteTopicsRequest) { q.Reason = huge }, invalid, false)
	one("topics", "duplicate", cluster.InvalidRequest, &pb.TopicToDelete{Name: "orders"}, &pb.TopicToDelete{Name: "orders"})
	one("topics.name", "empty", cluster.UnknownTopicOrPartition, &pb.TopicToDelete{})
	one("topics.name", "unknown", cluster.UnknownTopicOrPartition, unknown...)
	one("topics.name", "huge", cluster.UnknownTopicOrPartition, &pb.TopicToDelete{Name: huge})
	one("topics.topic_id", "short", cluster.UnknownTopicID, &pb.TopicToDelete{Name: "orders", TopicId: []byte{1}})
	one("topics.topic_id", "huge", cluster.UnknownTopicID, &pb.TopicToDelete{Name: "orders", TopicId: []byte(huge)})
	one("topics.topic_id", "unknown", cluster.UnknownTopicID, &pb.TopicToDelete{Name: "orders", TopicId: make([]byte, 16)})
}

// electLeaders: the valid request asks for what is so already.
func (r *rows) electLeaders() {
	valid := &pb.ElectLeadersRequest{
		Type: pb.ElectionType_ELECTION_TYPE_PREFERRED, Topics: []*pb.TopicPartitions{{Topic: "orders", Partitions: []int32{0}}},
	}
	row := func(path, what, want string, change func(*pb.ElectLeadersRequest), decided bool) {
		add(r, "ElectLeaders", path, what, valid, change, want, decided)
	}
	row("type", "none", invalid, func(q *pb.ElectLeadersRequest) { q.Type = 0 }, false)
	row("type", "unknown", invalid, func(q *pb.ElectLeadersRequest) { q.Type = 99 }, false)
	row("topics", "none", invalid, func(q *pb.ElectLeadersRequest) { q.Topics = nil }, false)
	row("topics", "duplicate", invalid, func(q *pb.ElectLeadersRequest) { q.Topics = append(q.Topics, q.Topics[0]) }, false)
	row("topics", "10,001 of them", invalid, func(q *pb.ElectLeadersRequest) {
		for i := range 10_000 {
			q.Topics = append(q.Topics, &pb.TopicPartitions{Topic: fmt.Sprint(i)})
		}
	}, false)
	row("topics.topic", "unknown", string(cluster.UnknownTopicOrPartition), func(q *pb.ElectLeadersRequest) { q.Topics[0].Topic = "x" }, true)
	row("topics.topic", "huge", string(cluster.UnknownTopicOrPartition), func(q *pb.ElectLeadersRequest) { q.Topics[0].Topic = huge }, true)
	row("topics.partitions", "unknown", string(cluster.UnknownTopicOrPartition), func(q *pb.ElectLeadersRequest) { q.Topics[0].Partitions[0] = 7 }, true)
	row("topics.partitions", "negative", string(cluster.UnknownTopicOrPartition), func(q *pb.ElectLeadersRequest) { q.Topics[0].Partitions[0] = -1 }, true)
	row("topics.partitions", "huge", string(cluster.UnknownTopicOrPartition), func(q *pb.ElectLeadersRequest) { q.Topics[0].Partitions[0] = math.MaxInt32 }, true)
	row("topics.partitions", "duplicate", invalid, func(q *pb.ElectLeadersRequest) { q.Topics[0].Partitions = []int32{0, 0} }, false)
	row("topics.partitions", "10,001 of them", invalid, func(q *pb.ElectLeadersRequest) {
		for i := range int32(10_000) {
			q.Topics[0].Partitions = append(q.Topics[0].Partitions, i+1)
		}
	}, false)
	row("topics.partitions", "led by its first replica", string(cluster.ElectionNotNeeded), func(*pb.ElectLeadersRequest) {}, true)
	row("all", "and topics", invalid, func(q *pb.ElectLeadersRequest) { q.All = true }, false)
	row("all", "without topics", ok, func(q *pb.ElectLeadersRequest) { q.All, q.Topics = true, nil }, true)
	row("all", "for one leader", invalid, func(q *pb.ElectLeadersRequest) {
		q.All, q.Topics, q.Type = true, nil, pb.ElectionType_ELECTION_TYPE_DESIGNATED
	}, false)
	row("leader", "named without need", invalid, func(q *pb.ElectLeadersRequest) { q.Leader = 1 }, false)
	designated := func(what, want string, leader int32, decided bool) {
		row("leader", what, want, func(q *pb.ElectLeadersRequest) {
			q.Type, q.Leader = pb.ElectionType_ELECTION_TYPE_DESIGNATED, leader
		}, decided)
	}
	designated("negative", invalid, -1, false)
	designated("huge", string(cluster.InvalidReplicaAssignment), math.MaxInt32, true)
	row("validate_only", "set", string(cluster.ElectionNotNeeded), func(q *pb.ElectLeadersRequest) { q.ValidateOnly = true }, true)
	row("reason", "too long", invalid, func(q *pb.ElectLeadersRequest) { q.Reason = strings.Repeat("x", 129) }, false)
	row("reason", "huge", invalid, func(q *pb.ElectLeadersRequest) { q.Reason = huge }, false)
}

func (r *rows) pages() {
	topics := func(path, what, want string, change func(*pb.ListTopicsRequest)) {
		add(r, "ListTopics", path, what, &pb.ListTopicsRequest{}, change, want, false)
	}
	topics("page_size", "negative", invalid, func(q *pb.ListTopicsRequest) { q.PageSize = -1 })
	topics("page_size", "huge", invalid, func(q *pb.ListTopicsRequest) { q.PageSize = math.MaxInt32 })
	topics("page_token", "unknown", invalid, func(q *pb.ListTopicsRequest) { q.PageToken = "zz" })
	topics("page_token", "huge", invalid, func(q *pb.ListTopicsRequest) { q.PageToken = huge })

	topic := func(path, what, want string, change func(*pb.DescribeTopicRequest)) {
		add(r, "DescribeTopic", path, what, &pb.DescribeTopicRequest{Name: "orders"}, change, want, false)
	}
	topic("name", "empty", string(cluster.UnknownTopicOrPartition), func(q *pb.DescribeTopicRequest) { q.Name = "" })
	topic("name", "unknown", string(cluster.UnknownTopicOrPartition), func(q *pb.DescribeTopicRequest) { q.Name = "x" })
	topic("name", "huge", string(cluster.UnknownTopicOrPartition), func(q *pb.DescribeTopicRequest) { q.Name = huge })
	topic("from_partition", "negative", invalid, func(q *pb.DescribeTopicRequest) { q.FromPartition = -1 })
	topic("from_partition", "huge", ok, func(q *pb.DescribeTopicRequest) { q.FromPartition = math.MaxInt32 })
	topic("page_size", "negative", invalid, func(q *pb.DescribeTopicRequest) { q.PageSize = -1 })
	topic("page_size", "huge", invalid, func(q *pb.DescribeTopicRequest) { q.PageSize = math.MaxInt32 })

	tombstones := func(path, what, want string, change func(*pb.ListTombstonesRequest)) {
		add(r, "ListTombstones", path, what, &pb.ListTombstonesRequest{}, change, want, false)
	}
	tombstones("page_size", "negative", invalid, func(q *pb.ListTombstonesRequest) { q.PageSize = -1 })
	tombstones("page_size", "huge", invalid, func(q *pb.ListTombstonesRequest) { q.PageSize = math.MaxInt32 })
	tombstones("page_token", "unknown", invalid, func(q *pb.ListTombstonesRequest) { q.PageToken = "zz" })
	tombstones("page_token", "huge", invalid, func(q *pb.ListTombstonesRequest) { q.PageToken = huge })
	tombstones("topic_ids", "1,001 of them", invalid, func(q *pb.ListTombstonesRequest) { q.TopicIds = make([][]byte, 1001) })
	tombstones("topic_ids", "short", string(cluster.UnknownTopicID), func(q *pb.ListTombstonesRequest) { q.TopicIds = [][]byte{{1}} })
	tombstones("topic_ids", "huge", string(cluster.UnknownTopicID), func(q *pb.ListTombstonesRequest) { q.TopicIds = [][]byte{[]byte(huge)} })
	tombstones("topic_ids", "unknown", ok, func(q *pb.ListTombstonesRequest) { q.TopicIds = [][]byte{make([]byte, 16)} })

	terms := func(path, what, want string, change func(*pb.ListTermsRequest)) {
		add(r, "ListTerms", path, what, &pb.ListTermsRequest{}, change, want, false)
	}
	terms("limit", "negative", invalid, func(q *pb.ListTermsRequest) { q.Limit = -1 })
	terms("limit", "huge", ok, func(q *pb.ListTermsRequest) { q.Limit = math.MaxInt32 })

	watch := func(path, what, want string, change func(*pb.WatchMetadataRequest)) {
		add(r, "WatchMetadata", path, what, &pb.WatchMetadataRequest{}, change, want, false)
	}
	watch("cluster_uuid", "of another cluster", otherCluster, func(q *pb.WatchMetadataRequest) { q.ClusterUuid = "x" })
	watch("revision", "negative", invalid, func(q *pb.WatchMetadataRequest) { q.Revision = -1 })
	watch("revision", "in the future", string(cluster.RequestTimedOut), func(q *pb.WatchMetadataRequest) { q.Revision = math.MaxInt64 })
	watch("details", "of another cluster", otherCluster, func(q *pb.WatchMetadataRequest) { q.Details, q.ClusterUuid = true, "x" })
	watch("topics", "1,001 of them", invalid, func(q *pb.WatchMetadataRequest) {
		for i := range 1001 {
			q.Topics = append(q.Topics, fmt.Sprint(i))
		}
	})
	watch("topics", "empty", string(cluster.InvalidTopicException), func(q *pb.WatchMetadataRequest) { q.Topics = []string{""} })
	watch("topics", "huge", string(cluster.InvalidTopicException), func(q *pb.WatchMetadataRequest) { q.Topics = []string{huge} })
	watch("topics", "duplicate", invalid, func(q *pb.WatchMetadataRequest) { q.Topics = []string{"a", "a"} })
	watch("topics", "unknown", ok, func(q *pb.WatchMetadataRequest) { q.Topics = []string{"later"} })

	invalidConfig := string(cluster.InvalidConfig)
	settings := func(path, what, want string, change func(*pb.AlterSettingsRequest), decided bool) {
		add(r, "AlterSettings", path, what, &pb.AlterSettingsRequest{Set: map[string]string{"x": "y"}, ValidateOnly: true}, change, want, decided)
	}
	settings("set", "missing", invalid, func(q *pb.AlterSettingsRequest) { q.Set = nil }, false)
	settings("set", "no name", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Set[""] = "x" }, true)
	settings("set", "huge", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Set["x"] = strings.Repeat("x", 64<<10) }, true)
	settings("set", "of a topic", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Set[cluster.DeleteProtection] = "true" }, true)
	settings("set", "no bool", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Set[cluster.UncleanElection] = "1" }, true)
	settings("set", "number out of range", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Set[cluster.ImbalancePercentage] = "101" }, true)
	settings("unset", "set too", invalidConfig, func(q *pb.AlterSettingsRequest) { q.Unset = []string{"x"} }, true)
	settings("unset", "unknown", ok, func(q *pb.AlterSettingsRequest) { q.Unset = []string{"y", "", huge} }, true)
	settings("freeze", "alone", ok, func(q *pb.AlterSettingsRequest) { q.Set, q.Freeze = nil, new(bool) }, true)
	settings("validate_only", "set", ok, func(q *pb.AlterSettingsRequest) {}, true)
	settings("reason", "huge", invalid, func(q *pb.AlterSettingsRequest) { q.Reason = huge }, false)

	badPartitions, badAssignment := string(cluster.InvalidPartitions), string(cluster.InvalidReplicaAssignment)
	expand := func(path, what, want string, change func(*pb.CreatePartitionsRequest), decided bool) {
		valid := &pb.CreatePartitionsRequest{Topics: []*pb.NewPartitions{{Topic: "orders", Count: 1000}}, ValidateOnly: true}
		add(r, "CreatePartitions", path, what, valid, change, want, decided)
	}
	expand("topics", "missing", invalid, func(q *pb.CreatePartitionsRequest) { q.Topics = nil }, false)
	expand("topics", "duplicate", invalid, func(q *pb.CreatePartitionsRequest) { q.Topics = append(q.Topics, q.Topics[0]) }, true)
	expand("topics", "1,001 of them", invalid, func(q *pb.CreatePartitionsRequest) {
		for range 1000 {
			q.Topics = append(q.Topics, &pb.NewPartitions{})
		}
	}, false)
	expand("topics.topic", "unknown", string(cluster.UnknownTopicOrPartition), func(q *pb.CreatePartitionsRequest) { q.Topics[0].Topic = huge }, true)
	for what, n := range map[string]int32{"negative": -1, "zero": 0, "fewer": 1, "huge": math.MaxInt32} {
		expand("topics.count", what, badPartitions, func(q *pb.CreatePartitionsRequest) { q.Topics[0].Count = n }, true)
	}
	expand("topics.assignments", "too few", badAssignment, func(q *pb.CreatePartitionsRequest) {
		q.Topics[0].Assignments = []*pb.ReplicaAssignment{{Replicas: []int32{1}}}
	}, true)
	expand("topics.assignments", "10,001 of them", invalid, func(q *pb.CreatePartitionsRequest) {
		q.Topics[0].Assignments = make([]*pb.ReplicaAssignment, 10_001)
		for i := range q.Topics[0].Assignments {
			q.Topics[0].Assignments[i] = &pb.ReplicaAssignment{}
		}
	}, false)
	for what, ids := range map[string][]int32{"none": nil, "unknown": {99}, "duplicate": {1, 1}, "negative": {-1}, "too many": make([]int32, 1000)} {
		expand("topics.assignments.replicas", what, badAssignment, func(q *pb.CreatePartitionsRequest) {
			q.Topics[0].Count, q.Topics[0].Assignments = 3, []*pb.ReplicaAssignment{{Replicas: ids}} // it has 2
		}, true)
	}
	expand("validate_only", "set", ok, func(*pb.CreatePartitionsRequest) {}, true)
	expand("request_id", "huge", invalid, func(q *pb.CreatePartitionsRequest) { q.RequestId = huge }, false)
	expand("reason", "huge", invalid, func(q *pb.CreatePartitionsRequest) { q.Reason = huge }, false)

	unknown := string(cluster.UnknownTopicOrPartition)
	move := func(path, what, want string, change func(*pb.AlterPartitionReassignmentsRequest), decided bool) {
		valid := &pb.AlterPartitionReassignmentsRequest{
			Partitions: []*pb.PartitionReassignment{{Topic: "orders", Target: &pb.ReplicaAssignment{Replicas: []int32{3, 2, 1}}}}, ValidateOnly: true,
		}
		add(r, "AlterPartitionReassignments", path, what, valid, change, want, decided)
	}
	move("partitions", "missing", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions = nil }, false)
	move("partitions", "duplicate", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions = append(q.Partitions, q.Partitions[0]) }, false)
	move("partitions", "10,001 of them", invalid, func(q *pb.AlterPartitionReassignmentsRequest) {
		for i := range int32(10_000) {
			q.Partitions = append(q.Partitions, &pb.PartitionReassignment{Topic: "orders", Partition: i + 1})
		}
	}, false)
	move("partitions.topic", "unknown", unknown, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Topic = "x" }, true)
	move("partitions.topic", "huge", unknown, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Topic = huge }, true)
	move("partitions.partition", "negative", unknown, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Partition = -1 }, true)
	move("partitions.partition", "huge", unknown, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Partition = math.MaxInt32 }, true)
	move("partitions.target", "cancels nothing", string(cluster.NoReassignmentInProgress), func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Target = nil }, true)
	for what, ids := range map[string][]int32{"none": nil, "unknown": {99}, "duplicate": {1, 1}, "negative": {-1}, "too many": make([]int32, 1000)} {
		move("partitions.target.replicas", what, badAssignment, func(q *pb.AlterPartitionReassignmentsRequest) { q.Partitions[0].Target.Replicas = ids }, true)
	}
	factor := func(path, what, want string, topic string, n int32, decided bool) {
		move(path, what, want, func(q *pb.AlterPartitionReassignmentsRequest) {
			q.Partitions, q.Topics = nil, []*pb.TopicReplicationFactor{{Topic: topic, ReplicationFactor: n}}
		}, decided)
	}
	factor("topics.topic", "unknown", unknown, "x", 1, true)
	for what, n := range map[string]int32{"zero": 0, "negative": -1, "above the brokers": 99, "huge": math.MaxInt32} {
		factor("topics.replication_factor", what, string(cluster.InvalidReplicationFactor), "orders", n, true)
	}
	move("topics", "named by partition too", invalid, func(q *pb.AlterPartitionReassignmentsRequest) {
		q.Topics = []*pb.TopicReplicationFactor{{Topic: "orders", ReplicationFactor: 1}}
	}, false)
	move("topics", "duplicate", invalid, func(q *pb.AlterPartitionReassignmentsRequest) {
		q.Topics = []*pb.TopicReplicationFactor{{Topic: "x"}, {Topic: "x"}}
	}, false)
	move("topics", "1,001 of them", invalid, func(q *pb.AlterPartitionReassignmentsRequest) {
		for i := range 1001 {
			q.Topics = append(q.Topics, &pb.TopicReplicationFactor{Topic: fmt.Sprint(i), ReplicationFactor: 1})
		}
	}, false)
	move("cancel_all", "and partitions", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.CancelAll = true }, false)
	move("max_moves", "negative", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.MaxMoves = new(int32); *q.MaxMoves = -1 }, false)
	move("max_moves", "huge", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.MaxMoves = new(int32); *q.MaxMoves = math.MaxInt32 }, false)
	move("validate_only", "set", ok, func(*pb.AlterPartitionReassignmentsRequest) {}, true)
	move("reason", "too long", invalid, func(q *pb.AlterPartitionReassignmentsRequest) { q.Reason = strings.Repeat("x", 129) }, false)
	ongoing := func(path, what, want string, change func(*pb.ListPartitionReassignmentsRequest)) {
		add(r, "ListPartitionReassignments", path, what, &pb.ListPartitionReassignmentsRequest{}, change, want, false)
	}
	ongoing("topics", "duplicate", invalid, func(q *pb.ListPartitionReassignmentsRequest) {
		q.Topics = []*pb.TopicPartitions{{Topic: "a"}, {Topic: "a"}}
	})
	ongoing("topics", "10,001 of them", invalid, func(q *pb.ListPartitionReassignmentsRequest) {
		for i := range 10_001 {
			q.Topics = append(q.Topics, &pb.TopicPartitions{Topic: fmt.Sprint(i)})
		}
	})
	ongoing("topics.topic", "unknown", ok, func(q *pb.ListPartitionReassignmentsRequest) { q.Topics = []*pb.TopicPartitions{{Topic: huge}} })
	ongoing("topics.partitions", "unknown", ok, func(q *pb.ListPartitionReassignmentsRequest) {
		q.Topics = []*pb.TopicPartitions{{Topic: "orders", Partitions: []int32{-1, math.MaxInt32}}}
	})
	ongoing("topics.partitions", "duplicate", invalid, func(q *pb.ListPartitionReassignmentsRequest) {
		q.Topics = []*pb.TopicPartitions{{Topic: "orders", Partitions: []int32{1, 1}}}
	})
	ongoing("page_size", "negative", invalid, func(q *pb.ListPartitionReassignmentsRequest) { q.PageSize = -1 })
	ongoing("page_size", "huge", invalid, func(q *pb.ListPartitionReassignmentsRequest) { q.PageSize = math.MaxInt32 })
	ongoing("page_token", "garbage", invalid, func(q *pb.ListPartitionReassignmentsRequest) { q.PageToken = "x" })
	ongoing("page_token", "huge", invalid, func(q *pb.ListPartitionReassignmentsRequest) { q.PageToken = huge })

	noBroker := string(cluster.BrokerIDNotRegistered)
	drain := func(path, what, want string, change func(*pb.DrainBrokerRequest), decided bool) {
		add(r, "DrainBroker", path, what, &pb.DrainBrokerRequest{BrokerId: 1, ValidateOnly: true}, change, want, decided)
	}
	drain("broker_id", "negative", invalid, func(q *pb.DrainBrokerRequest) { q.BrokerId = -1 }, false)
	drain("broker_id", "unknown", noBroker, func(q *pb.DrainBrokerRequest) { q.BrokerId = 99 }, true)
	drain("broker_id", "huge", noBroker, func(q *pb.DrainBrokerRequest) { q.BrokerId = math.MaxInt32 }, true)
	drain("cancel", "not drained", ok, func(q *pb.DrainBrokerRequest) { q.Cancel = true }, true)
	drain("validate_only", "set", ok, func(*pb.DrainBrokerRequest) {}, true)
	drain("reason", "huge", invalid, func(q *pb.DrainBrokerRequest) { q.Reason = huge }, false)

	alterTopic := func(path, what, want string, change func(*pb.AlterTopicsRequest), decided bool) {
		valid := &pb.AlterTopicsRequest{Topics: []string{"orders"}, Set: map[string]string{"x": "y"}, ValidateOnly: true}
		add(r, "AlterTopics", path, what, valid, change, want, decided)
	}
	alterTopic("topics", "missing", invalid, func(q *pb.AlterTopicsRequest) { q.Topics = nil }, false)
	alterTopic("topics", "duplicate", invalid, func(q *pb.AlterTopicsRequest) { q.Topics = []string{"orders", "orders"} }, false)
	alterTopic("topics", "unknown", string(cluster.UnknownTopicOrPartition), func(q *pb.AlterTopicsRequest) { q.Topics = []string{huge} }, true)
	alterTopic("topics", "1,001 of them", invalid, func(q *pb.AlterTopicsRequest) {
		for i := range 1001 {
			q.Topics = append(q.Topics, fmt.Sprint(i))
		}
	}, false)
	alterTopic("set", "missing", invalid, func(q *pb.AlterTopicsRequest) { q.Set = nil }, false)
	alterTopic("set", "no name", invalidConfig, func(q *pb.AlterTopicsRequest) { q.Set[""] = "x" }, true)
	alterTopic("set", "huge", invalidConfig, func(q *pb.AlterTopicsRequest) { q.Set["x"] = strings.Repeat("x", 64<<10) }, true)
	alterTopic("set", "of the cluster", invalidConfig, func(q *pb.AlterTopicsRequest) { q.Set[cluster.MaxMoves] = "1" }, true)
	alterTopic("set", "no bool", invalidConfig, func(q *pb.AlterTopicsRequest) { q.Set[cluster.UncleanElection] = "yes" }, true)
	alterTopic("unset", "set too", invalidConfig, func(q *pb.AlterTopicsRequest) { q.Unset = []string{"x"} }, true)
	alterTopic("validate_only", "set", ok, func(q *pb.AlterTopicsRequest) {}, true)
	alterTopic("reason", "huge", invalid, func(q *pb.AlterTopicsRequest) { q.Reason = huge }, false)

	transfer := func(path, what string, change func(*pb.TransferControllerRequest), decided bool) {
		add(r, "TransferController", path, what, &pb.TransferControllerRequest{Successor: "nobody"}, change, invalid, decided)
	}
	transfer("successor", "empty", func(q *pb.TransferControllerRequest) { q.Successor = "" }, true)
	transfer("successor", "unknown", func(q *pb.TransferControllerRequest) { q.Successor = "x" }, true)
	transfer("successor", "huge", func(q *pb.TransferControllerRequest) { q.Successor = huge }, false)
	staleEpoch := string(cluster.StaleControllerEpoch)
	add(r, "TransferController", "epoch", "of the future", &pb.TransferControllerRequest{Successor: "nobody"}, func(q *pb.TransferControllerRequest) { q.Epoch = math.MaxInt64 }, staleEpoch, true)
	add(r, "TransferController", "epoch", "negative", &pb.TransferControllerRequest{Successor: "nobody"}, func(q *pb.TransferControllerRequest) { q.Epoch = -1 }, staleEpoch, true)
	transfer("reason", "huge", func(q *pb.TransferControllerRequest) { q.Reason = huge }, false)

	// A valid request of this kind would be obeyed.
	add(r, "ResignController", "epoch", "of the future", &pb.ResignControllerRequest{}, func(q *pb.ResignControllerRequest) { q.Epoch = math.MaxInt64 }, staleEpoch, true)
	add(r, "ResignController", "epoch", "negative", &pb.ResignControllerRequest{}, func(q *pb.ResignControllerRequest) { q.Epoch = -1 }, staleEpoch, true)
	add(r, "ResignController", "reason", "huge", &pb.ResignControllerRequest{}, func(q *pb.ResignControllerRequest) { q.Reason = huge }, invalid, false)
}
