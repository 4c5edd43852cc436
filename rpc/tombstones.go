package rpc

import (
	"encoding/hex"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// maxTombstones bounds a page of tombstones, and how many are asked for by id.
const maxTombstones = 1_000

// listTombstones is one page in order of topic id, after the id that the token
// holds.
func listTombstones(im *cluster.Image, r *pb.ListTombstonesRequest) (*pb.ListTombstonesResponse, error) {
	size := int(r.GetPageSize())
	after, err := hex.DecodeString(r.GetPageToken())
	switch {
	case size < 0 || size > maxTombstones:
		return nil, bad("page size %d is not between 1 and %d", size, maxTombstones)
	case size == 0:
		size = maxTombstones
	}
	if err != nil || len(after) != 0 && len(after) != len(cluster.TopicID{}) {
		return nil, bad("page token %q is not one of ours", r.GetPageToken())
	}
	ids, err := tombstonesAfter(im, r.GetTopicIds(), after, size+1)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListTombstonesResponse{Revision: int64(im.Rev)}
	if len(ids) > size {
		ids = ids[:size]
		resp.NextPageToken = ids[size-1].Hex()
	}
	for _, id := range ids {
		resp.Tombstones = append(resp.Tombstones, tombstoneSummary(im.Tombstones[id]))
	}
	return resp, nil
}

// tombstonesAfter are the first tombstones after a topic id, at most so many,
// in order: all of them or those of some topics.
func tombstonesAfter(im *cluster.Image, asked [][]byte, after []byte, most int) ([]cluster.TopicID, error) {
	if len(asked) > maxTombstones {
		return nil, bad("%d topic ids, want at most %d", len(asked), maxTombstones)
	}
	var first []cluster.TopicID
	add := func(id cluster.TopicID) {
		if im.Tombstones[id] == nil || slices.Compare(id[:], after) <= 0 || len(first) == most && compareIDs(id, first[most-1]) >= 0 {
			return
		}
		if i, twice := slices.BinarySearchFunc(first, id, compareIDs); !twice {
			first = slices.Insert(first, i, id)
			first = first[:min(len(first), most)]
		}
	}
	for _, raw := range asked {
		id, err := cluster.TopicIDFrom(raw)
		if err != nil {
			return nil, Error(cluster.UnknownTopicID, nil, "%v", err)
		}
		add(id)
	}
	if len(asked) == 0 {
		for id := range im.Tombstones {
			add(id)
		}
	}
	return first, nil
}

func compareIDs(a, b cluster.TopicID) int { return slices.Compare(a[:], b[:]) }

func tombstoneSummary(t *cluster.Tombstone) *pb.TombstoneSummary {
	r := t.Record
	s := &pb.TombstoneSummary{
		TopicId: t.ID[:], Topic: r.GetTopic(), Partitions: r.GetPartitions(), Reason: r.GetReason(),
		DeletedMs: r.GetDeletedMs(), ControllerEpoch: r.GetControllerEpoch(),
	}
	for _, h := range r.GetHolders() {
		s.Brokers = append(s.Brokers, h.GetBrokerId())
	}
	return s
}
