package controller

import (
	"fmt"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// createPartitions decides a request for more partitions, each topic by itself.
// It waits for another write of one of their records, or of a block that gets
// partitions.
func (d *draft) createPartitions(owner int64, r rpc.CreatePartitions) bool {
	im := d.l.im
	more, times := 0, map[string]int{}
	for _, np := range r.GetTopics() {
		times[np.GetTopic()]++
		t := im.Topics[np.GetTopic()]
		if t == nil {
			continue
		}
		if d.recorded(t.ID) || len(np.GetAssignments()) > 0 && d.touches(t) {
			return false
		}
		more += int(max(0, np.GetCount()-t.Wanted()))
	}
	resp := &pb.CreatePartitionsResponse{}
	for _, np := range r.GetTopics() {
		if times[np.GetTopic()] > 1 {
			resp.Results = append(resp.Results, &pb.CreatePartitionsResult{
				Topic: np.GetTopic(), Error: string(cluster.InvalidRequest), Message: fmt.Sprintf("the request names topic %q more than once", np.GetTopic()),
			})
			continue
		}
		resp.Results = append(resp.Results, d.expand(owner, r, np, more))
	}
	d.answers[owner] = rpc.Answer{Response: resp}
	return true
}

// touches reports whether this plan writes the last block of a topic already.
func (d *draft) touches(t *cluster.Topic) bool {
	return d.blocks[cluster.BlockID{Topic: t.ID, Index: t.Made() / t.BlockSize()}] != nil
}

// expand makes more partitions of one topic, of a request that asks for so many
// in all.
func (d *draft) expand(owner int64, r rpc.CreatePartitions, np *pb.NewPartitions, asked int) *pb.CreatePartitionsResult {
	im := d.l.im
	t := im.Topics[np.GetTopic()]
	result := &pb.CreatePartitionsResult{Topic: np.GetTopic()}
	if t != nil {
		result.TopicId, result.Partitions, result.Made = t.ID[:], t.Wanted(), t.Made()
		if id := r.GetRequestId(); id != "" && t.Record.GetExpandRequestId() == id {
			return result // an attempt whose answer was lost
		}
	}
	record, parts, rej := statemachine.Expand(im, d.term, t, np)
	if rej != nil {
		result.Error, result.Message = string(rej.Reason), rej.Message
		return result
	}
	if what := d.exceeds(int(np.GetCount()), int(np.GetCount()-t.Wanted()), asked); what != "" {
		result.Error, result.Message = string(cluster.PolicyViolation), what
		return result
	}
	result.Partitions = record.GetPartitionsWanted()
	if r.GetValidateOnly() {
		return result
	}
	result.Made = record.GetPartitionsMade()
	record.ExpandRequestId, record.ExpandReason = r.GetRequestId(), r.GetReason()
	d.promised += int(np.GetCount() - t.Wanted())
	for _, w := range parts {
		if !d.put(w, owner) {
			result.Error, result.Message = string(cluster.InvalidRequest), "no rule makes this change"
			return result
		}
	}
	d.altered[t.ID] = true
	u := unit{
		conds:  []store.Cond{store.ModRevIs(im.Keys.Topic(t.Name), t.ModRev)},
		ops:    []store.Op{store.Put(im.Keys.Topic(t.Name), cluster.Encode(record))},
		owners: []int64{owner},
	}
	if len(parts) > 0 {
		d.records = append(d.records, u)
	} else {
		d.add(&u)
	}
	return result
}
