package main

import (
	"cmp"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

type brokersView struct {
	Brokers []brokerView `json:"brokers"`
	// FromActive: the active answered, so that what only it knows is there.
	FromActive bool  `json:"from_active"`
	Revision   int64 `json:"revision"`
}

type brokerView struct {
	ID             int32          `json:"id"`
	Live           bool           `json:"live"`
	State          string         `json:"state"` // running, draining, down
	Unreachable    bool           `json:"unreachable"`
	BrokerEpoch    int64          `json:"broker_epoch"`
	Registered     string         `json:"registered"`
	SessionAgeMS   *int64         `json:"session_age_ms"` // null: not known
	ResumePoint    *int64         `json:"resume_point"`   // null: not known
	Rack           string         `json:"rack"`
	Leaders        int32          `json:"leaders"`
	Replicas       int32          `json:"replicas"`
	DeathProbe     bool           `json:"death_probe"` // taken for dead when its control address refuses connections
	ControlAddress string         `json:"control_address"`
	Endpoints      []endpointView `json:"endpoints"`
	NodeUUID       string         `json:"node_uuid"`
	// Null: not known, since no active controller answered.
	OfflineReplicas *int32      `json:"offline_replicas"`
	StrayReplicas   *int32      `json:"stray_replicas"`
	Strays          []strayView `json:"strays"` // the first 1,000
	// Null: not known, also of a broker without a stream.
	Unconfirmed *int64 `json:"unconfirmed"`
	Problem     string `json:"problem"`
	// Why it is draining, if somebody has said, and since when.
	DrainReason string `json:"drain_reason"`
	Drained     string `json:"drained"`
}

type endpointView struct {
	Listener string `json:"listener"`
	Address  string `json:"address"`
}

// strayView is a replica that a broker holds and nobody has assigned to it.
type strayView struct {
	Topic       string `json:"topic"`
	TopicID     string `json:"topic_id"`
	Partition   int32  `json:"partition"`
	LeaderEpoch int32  `json:"leader_epoch"` // -1: not known
}

// straysOf is never null in JSON.
func straysOf(topics []*pb.TopicReplicas) []strayView {
	out := []strayView{}
	for _, t := range topics {
		for _, r := range t.GetReplicas() {
			out = append(out, strayView{t.GetTopic(), topicID(t.GetTopicId()), r.GetPartition(), r.GetLeaderEpoch()})
		}
	}
	return out
}

func brokersOf(resp *pb.ListBrokersResponse, nowMs int64) *brokersView {
	v := &brokersView{Brokers: []brokerView{}, FromActive: resp.GetFromActive(), Revision: resp.GetRevision()}
	for _, b := range resp.GetBrokers() {
		v.Brokers = append(v.Brokers, brokerOf(b, nowMs))
	}
	return v
}

func brokerOf(b *pb.BrokerSummary, nowMs int64) brokerView {
	v := brokerView{
		ID: b.GetId(), Live: b.GetLive(), State: "down", Unreachable: b.GetUnreachable(), BrokerEpoch: b.GetBrokerEpoch(),
		Registered: timeOf(b.GetRegisteredMs()), ResumePoint: b.ResumePoint, Rack: b.GetRack(),
		Leaders: b.GetLeaders(), Replicas: b.GetReplicas(), ControlAddress: b.GetControlAddress(), DeathProbe: b.GetDeathProbe(),
		Endpoints: []endpointView{}, NodeUUID: b.GetNodeUuid(),
		OfflineReplicas: b.OfflineReplicas, StrayReplicas: b.StrayReplicas, Strays: straysOf(b.GetStrays()), Problem: b.GetProblem(),
		Unconfirmed: b.Unconfirmed, DrainReason: b.GetDrainReason(), Drained: timeOf(b.GetDrainMs()),
	}
	if b.GetLive() {
		v.State = enum(b.GetState().String(), "BROKER_STATE_")
	}
	if b.GetRegisteredMs() != 0 {
		age := span(b.GetRegisteredMs(), nowMs)
		v.SessionAgeMS = &age
	}
	for _, e := range b.GetEndpoints() {
		v.Endpoints = append(v.Endpoints, endpointView{Listener: e.GetListener(), Address: e.GetAddress()})
	}
	return v
}

// condition is the state in one word, the worst that is so.
func (b *brokerView) condition() string {
	if b.Unreachable {
		return "unreachable"
	}
	return b.State
}

func (v *brokersView) table() table {
	t := table{head: []string{"ID", "STATE", "EPOCH", "SESSION", "RESUME", "RACK", "LEADERS", "REPLICAS", "OFFLINE", "STRAYS", "CONTROL-ADDRESS", "NODE", "PROBLEM"}}
	for _, b := range v.Brokers {
		epoch, resume := "", "-"
		if b.Live {
			epoch = str(b.BrokerEpoch)
		}
		if b.ResumePoint != nil {
			resume = str(*b.ResumePoint)
		}
		t.rows = append(t.rows, []string{
			str(b.ID), b.condition(), epoch, cmp.Or(age(b.SessionAgeMS), "-"), resume, b.Rack, str(b.Leaders), str(b.Replicas),
			known(b.OfflineReplicas), known(b.StrayReplicas),
			b.ControlAddress, b.NodeUUID, b.Problem,
		})
	}
	return t
}
