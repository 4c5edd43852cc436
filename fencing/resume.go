package fencing

import (
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Feed is one stream of commands: what the gate must remember of it to know
// whether the stream has brought everything that it says it has.
type Feed struct {
	// Failures counts the results other than APPLIED and ALREADY that were
	// given on the stream.
	Failures int64
	whole    bool // everything since it began was admitted
}

// Obeyed takes in what the gate said to a command of the stream. At the end of
// a full sync that came without a gap it adds to that which replicas are stray,
// and which topics are gone.
func (g *Gate) Obeyed(f *Feed, cmd *pb.Command, v *Verdict) {
	if v.Refused() {
		f.whole = false
		return
	}
	g.Progress(f, cmd.GetProgress())
	if fs := cmd.GetFullSync(); fs != nil && f.whole {
		v.Strays = g.finishSync(fs, store.Rev(cmd.GetStamp().GetRevision()))
		v.Removed = g.forgetUnnamed(fs)
	}
}

// Progress takes in what a controller says that a stream has brought, beside
// or with a command that was admitted. It is believed of the newest controller,
// of a stream without a gap, and only when the controller has heard of every
// failure.
func (g *Gate) Progress(f *Feed, p *pb.Progress) {
	if p == nil || cluster.Epoch(p.GetControllerEpoch()) != g.controllerEpoch {
		return
	}
	f.whole = f.whole || p.GetBegins()
	if !f.whole || f.Failures != p.GetFailures() {
		return
	}
	g.resume = nil
	if p.GetResumePoint() > 0 {
		g.resume = &pb.ResumePoint{
			ControllerEpoch: p.GetControllerEpoch(), ClaimRevision: p.GetClaimRevision(), Revision: p.GetResumePoint(),
		}
	}
}

// Pong answers a ping with what the broker holds.
func (g *Gate) Pong(sequence int64) *pb.Pong {
	return &pb.Pong{Sequence: sequence, Hosted: wireDigest(g.digests.hosted), Metadata: wireDigest(g.digests.metadata)}
}

func wireDigest(d cluster.Digest) *pb.Digest { return &pb.Digest{Count: d.Count, Sum: d.Sum} }

// forgetUnnamed forgets the metadata that no command of a full sync has named,
// nor one made since it began, and returns the topics of it.
func (g *Gate) forgetUnnamed(fs *pb.FullSync) []RemovedTopic {
	if !fs.GetEverything() || fs.GetSinceRevision() <= 0 {
		return nil
	}
	g.forgetConfigs(store.Rev(fs.GetSinceRevision()))
	gone := map[cluster.TopicID]RemovedTopic{}
	for id, h := range g.metadata {
		if h.named >= store.Rev(fs.GetSinceRevision()) {
			continue
		}
		gone[id.Topic] = RemovedTopic{ID: id.Topic, Name: h.state.Topic, Partitions: max(gone[id.Topic].Partitions, id.Index+1)}
		g.forgetMetadata(id)
	}
	return slices.SortedFunc(maps.Values(gone), func(a, b RemovedTopic) int {
		return cluster.PartitionID{Topic: a.ID}.Compare(cluster.PartitionID{Topic: b.ID})
	})
}
