package rpc

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Sizes of pages.
const (
	defaultPage = 1_000
	maxPage     = 10_000
	defaultTerm = 20
)

func pageSize(asked int32) (int, error) {
	switch {
	case asked < 0 || asked > maxPage:
		return 0, Error(cluster.InvalidRequest, nil, "page size %d is not between 1 and %d", asked, maxPage)
	case asked == 0:
		return defaultPage, nil
	}
	return int(asked), nil
}

// listTopics is one page of topics in order of name, after the name that the
// token holds.
func listTopics(im *cluster.Image, r *pb.ListTopicsRequest) (*pb.ListTopicsResponse, error) {
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	after, err := hex.DecodeString(r.GetPageToken())
	if err != nil {
		return nil, Error(cluster.InvalidRequest, nil, "page token %q is not one of ours", r.GetPageToken())
	}
	resp := &pb.ListTopicsResponse{Revision: int64(im.Rev)}
	topics := im.TopicsAfter(string(after), size+1)
	if len(topics) > size {
		topics = topics[:size]
		resp.NextPageToken = hex.EncodeToString([]byte(topics[size-1].Name))
	}
	for _, t := range topics {
		resp.Topics = append(resp.Topics, summary(im, t))
	}
	return resp, nil
}

// summary is a topic and its health.
func summary(im *cluster.Image, t *cluster.Topic) *pb.TopicSummary {
	h := im.Health(t)
	return &pb.TopicSummary{
		Name: t.Name, TopicId: t.ID[:], Partitions: h.Partitions, ReplicationFactor: t.Record.GetReplicationFactor(),
		Deleting: t.Deleting(), Unknown: h.Unknown, Offline: h.Offline, UnderReplicated: h.UnderReplicated,
	}
}

// describeTopic is one page of a topic's partitions.
func describeTopic(v View, r *pb.DescribeTopicRequest) (*pb.DescribeTopicResponse, error) {
	im := v.Image
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	t := im.Topics[r.GetName()]
	switch {
	case t == nil:
		return nil, Error(cluster.UnknownTopicOrPartition, map[string]string{"topic": r.GetName()}, "topic %q does not exist", r.GetName())
	case r.GetFromPartition() < 0:
		return nil, Error(cluster.InvalidRequest, nil, "partition %d is negative", r.GetFromPartition())
	}
	resp := &pb.DescribeTopicResponse{
		Topic: summary(im, t), Config: t.Record.GetConfig(), NextPartition: -1, Revision: int64(im.Rev), FromActive: v.Active,
		PartitionsWanted: t.Wanted(), CreatedMs: t.Record.GetCreatedMs(),
		CreateReason: t.Record.GetCreateReason(), DeleteReason: t.Record.GetDeleteReason(),
		ConfigReason: t.Record.GetConfigReason(),
	}
	end := min(int64(r.GetFromPartition())+int64(size), int64(t.Made()))
	for i := r.GetFromPartition(); int64(i) < end; i++ {
		id := cluster.PartitionID{Topic: t.ID, Index: i}
		if p := im.Partition(id); p != nil {
			record := p.Record(i)
			record.Reason = im.Reason(id)
			resp.Partitions = append(resp.Partitions, record)
			if offline := v.offline(id, p); offline != nil {
				resp.Offline = append(resp.Offline, &pb.OfflineReplicas{Partition: i, Brokers: offline})
			}
		} else {
			resp.Unknown = append(resp.Unknown, i)
		}
	}
	resp.Unconfirmed = v.unconfirmed(t.ID, resp.GetPartitions())
	if end < int64(t.Made()) {
		resp.NextPartition = int32(end)
	}
	return resp, nil
}

// offline are the brokers whose replica of a partition is offline, as far as is
// known.
func (v View) offline(id cluster.PartitionID, p *cluster.Partition) (out []int32) {
	if v.Pusher == nil || v.Pusher.offline == 0 {
		return nil
	}
	for _, r := range p.Replicas {
		if b := v.Image.Brokers[r]; b != nil && v.Pusher.Offline(b, id) {
			out = append(out, int32(r))
		}
	}
	return out
}

// maxStrays bounds the strays of a broker that are named.
const maxStrays = 1000

// describeReplicas says what a live broker has said of its replicas.
func describeReplicas(p *Pusher, id cluster.BrokerID, s *pb.BrokerSummary) {
	strays := p.Strays(id)
	s.OfflineReplicas = proto.Int32(int32(p.OfflineReplicas(id)))
	s.StrayReplicas = proto.Int32(int32(len(strays)))
	s.Strays = fencing.WireReplicas(strays[:min(len(strays), maxStrays)])
}

// listBrokers names live brokers, and those known by their node only.
func listBrokers(v View) *pb.ListBrokersResponse {
	im := v.Image
	resp := &pb.ListBrokersResponse{Revision: int64(im.Rev), FromActive: v.Active}
	var contacts map[cluster.BrokerID]Contact
	if v.Contacts != nil {
		contacts = v.Contacts()
	}
	for _, id := range knownBrokers(im) {
		load := im.Load(id)
		s := &pb.BrokerSummary{Id: int32(id), Replicas: load.Replicas, Leaders: load.Leaders}
		if n := im.Nodes[id]; n != nil {
			s.NodeUuid = n.Record.GetNodeUuid()
		}
		if b := im.Brokers[id]; b != nil {
			s.Live, s.BrokerEpoch, s.Rack, s.State = true, int64(b.Epoch), b.Record.GetRack(), b.Record.GetState()
			s.ControlAddress, s.NodeUuid, s.Endpoints = b.Record.GetControlAddress(), b.Record.GetNodeUuid(), b.Record.GetEndpoints()
			s.Unreachable, s.RegisteredMs, s.DeathProbe = b.Unreachable(), b.Record.GetRegisteredMs(), b.Record.GetDeathProbe()
			s.DrainReason, s.DrainMs = b.Record.GetDrainReason(), b.Record.GetDrainMs()
			c := contacts[id]
			s.Problem = c.Problem
			if v.Pusher != nil {
				describeReplicas(v.Pusher, id, s)
				if n, known := v.Pusher.Unconfirmed(b); known {
					s.Unconfirmed = &n
				}
			}
			if c.ResumePoint != 0 {
				s.ResumePoint = new(int64(c.ResumePoint))
			}
		}
		resp.Brokers = append(resp.Brokers, s)
	}
	return resp
}

func describeController(v View) *pb.DescribeControllerResponse {
	im := v.Image
	resp := &pb.DescribeControllerResponse{
		Id: v.Self, Nonce: v.Nonce, Role: "standby", Version: v.Version, ClusterUuid: im.Cluster.GetUuid(), Epoch: int64(im.Epoch),
		Revision: int64(im.Rev), Brokers: int32(len(im.Brokers)), Topics: int32(len(im.Topics)), Problems: v.Problems(), SessionState: v.Session,
	}
	resp.Counters = map[string]int64{} // a copy: more is added to it
	maps.Copy(resp.Counters, v.Counters)
	for _, b := range im.SortedBrokers() {
		if b.Unreachable() {
			resp.UnreachableBrokers = append(resp.UnreachableBrokers, int32(b.ID))
		}
	}
	resp.Freeze = freezeOf(im)
	if v.Active {
		resp.Role = "active"
	}
	if v.Lease != nil {
		resp.Lease = &pb.DaemonLease{
			TtlMs: v.Lease.TTL.Milliseconds(), MarginMs: v.Lease.Margin.Milliseconds(), UsualMarginMs: v.Lease.Usual.Milliseconds(),
		}
	}
	if c := im.Controller; c != nil {
		resp.ControllerId, resp.ControllerEndpoint = c.Record.GetId(), c.Record.GetEndpoint()
	}
	h := im.HealthOfAll()
	resp.Partitions, resp.OfflinePartitions = h.Partitions, h.Offline
	resp.UnderReplicatedPartitions, resp.UnknownPartitions = h.UnderReplicated, h.Unknown
	return resp
}

// listControllers names all candidates, and the active one also if its
// candidate key is gone.
func listControllers(im *cluster.Image) *pb.ListControllersResponse {
	resp := &pb.ListControllersResponse{Revision: int64(im.Rev)}
	active := false
	for _, c := range im.Candidates {
		r := c.Record
		s := &pb.ControllerSummary{
			Id: r.GetId(), Endpoint: r.GetEndpoint(), Version: r.GetVersion(), Nonce: r.GetNonce(), StartedMs: r.GetStartedMs(),
			Active: im.Controller != nil && im.Controller.Record.GetNonce() == r.GetNonce(),
		}
		active = active || s.Active
		resp.Controllers = append(resp.Controllers, s)
	}
	if c := im.Controller; c != nil && !active {
		r := c.Record
		resp.Controllers = append(resp.Controllers, &pb.ControllerSummary{
			Id: r.GetId(), Endpoint: r.GetEndpoint(), Nonce: r.GetNonce(), StartedMs: r.GetStartedMs(), Active: true,
		})
	}
	slices.SortFunc(resp.Controllers, func(a, b *pb.ControllerSummary) int {
		return strings.Compare(a.GetId()+"/"+a.GetNonce(), b.GetId()+"/"+b.GetNonce())
	})
	return resp
}

func listTerms(im *cluster.Image, r *pb.ListTermsRequest) (*pb.ListTermsResponse, error) {
	limit := int(r.GetLimit())
	switch {
	case limit < 0:
		return nil, Error(cluster.InvalidRequest, nil, "limit %d is negative", limit)
	case limit == 0:
		limit = defaultTerm
	}
	resp := &pb.ListTermsResponse{Revision: int64(im.Rev), Terms: lastTerms(im, limit)}
	slices.Reverse(resp.Terms)
	return resp, nil
}
