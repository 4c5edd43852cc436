package rpc

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// listReassignments lists what is under way of reassignments, or waits.
func listReassignments(v View, r *pb.ListPartitionReassignmentsRequest) (*pb.ListPartitionReassignmentsResponse, error) {
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	if err := checkPartitions(r.GetTopics()); err != nil {
		return nil, err
	}
	from, err := parsePartitionToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	im := v.Image
	n := im.MovesOfAll()
	resp := &pb.ListPartitionReassignmentsResponse{
		Revision: int64(im.Rev), Moving: int64(n.Moving), Queued: int64(n.Queued), Leaving: int64(n.Leaving), Adding: int64(n.Adding),
		MaxMoves: int32(im.Settings.Number(cluster.MaxMoves)), Freeze: freezeOf(im),
	}
	for _, id := range v.named(r.GetTopics(), from, size+1) {
		if len(resp.Reassignments) == size {
			resp.NextPageToken = partitionToken(id)
			break
		}
		if m := v.ongoing(id); m != nil {
			resp.Reassignments = append(resp.Reassignments, m)
		}
	}
	return resp, nil
}

// named are the partitions that a request names, or all that are being
// reassigned, from one on.
func (v View) named(topics []*pb.TopicPartitions, from cluster.PartitionID, limit int) []cluster.PartitionID {
	if len(topics) == 0 {
		return v.Moving(from, limit)
	}
	var out []cluster.PartitionID
	for _, t := range topics {
		topic := v.Image.Topics[t.GetTopic()]
		if topic == nil {
			continue
		}
		if len(t.GetPartitions()) == 0 {
			for _, id := range v.Moving(cluster.PartitionID{Topic: topic.ID}, int(topic.Made())) {
				if id.Topic == topic.ID {
					out = append(out, id)
				}
			}
		}
		for _, i := range t.GetPartitions() {
			out = append(out, cluster.PartitionID{Topic: topic.ID, Index: i})
		}
	}
	out = slices.DeleteFunc(out, func(id cluster.PartitionID) bool { return id.Compare(from) < 0 || v.ongoing(id) == nil })
	slices.SortFunc(out, cluster.PartitionID.Compare)
	return out[:min(len(out), limit)]
}

// ongoing is what is left to do of a reassignment, nil if nothing is.
func (v View) ongoing(id cluster.PartitionID) *pb.OngoingReassignment {
	p := v.Image.Partition(id)
	if p == nil || len(p.Adding)+len(p.Removing)+len(p.Target) == 0 {
		return nil
	}
	state, words := v.WaitsFor(id)
	r := p.Record(id.Index)
	m := &pb.OngoingReassignment{
		Topic: v.Image.TopicByID(id.Topic).Name, Partition: id.Index, State: state, Replicas: r.GetReplicas(), Adding: r.GetAdding(),
		Removing: r.GetRemoving(), Target: r.GetTarget(), Isr: r.GetIsr(), Leader: r.GetLeader(), WaitsFor: words,
		Reason: v.Image.Reason(id), ChangedMs: r.GetChangedMs(),
	}
	if len(m.GetTarget()) == 0 {
		m.Target = slices.DeleteFunc(slices.Clone(r.GetReplicas()), func(b int32) bool { return slices.Contains(r.GetRemoving(), b) })
	}
	return m
}

func partitionToken(id cluster.PartitionID) string {
	return fmt.Sprintf("%s/%d", id.Topic.Hex(), id.Index)
}

func parsePartitionToken(token string) (cluster.PartitionID, error) {
	if token == "" {
		return cluster.PartitionID{}, nil
	}
	topic, index, _ := strings.Cut(token, "/")
	raw, err := hex.DecodeString(topic)
	n, bad2 := strconv.ParseInt(index, 10, 32)
	if err != nil || bad2 != nil || len(raw) != 16 {
		return cluster.PartitionID{}, bad("page token %q is not one that this service gives", token)
	}
	return cluster.PartitionID{Topic: cluster.TopicID(raw), Index: int32(n)}, nil
}

// freezeOf says why automation stands still, nil: it does not.
func freezeOf(im *cluster.Image) *pb.Freeze {
	switch {
	case !im.Settings.Frozen():
		return nil
	case im.Settings.Unreadable:
		return &pb.Freeze{Reason: "the settings cannot be read"}
	}
	return im.Settings.Record.GetFreeze()
}
