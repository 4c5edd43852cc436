package rpc

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// maxTerms bounds the terms that a client is told at once. It sees by their
// epochs if it has missed some.
const maxTerms = 100

// seat tells an operator who holds the seat, and what has become of terms since
// it was told last.
func (r *reader) seat(im *cluster.Image, p *piece) {
	if !r.details {
		return
	}
	s := &pb.Seat{Epoch: int64(im.Epoch)}
	if r.walking {
		s.Terms = lastTerms(im, defaultTerm)
	} else {
		s.Terms = termsSince(im, r.terms)
	}
	if im.Controller != nil {
		s.ControllerId = im.Controller.Record.GetId()
	}
	p.resp.Seat, r.terms = s, im.Rev
	p.size += proto.Size(s)
}

// lastTerms are the last so many terms, in order.
func lastTerms(im *cluster.Image, limit int) []*pb.TermRecord {
	epochs := slices.Sorted(maps.Keys(im.Terms))
	var out []*pb.TermRecord
	for _, e := range epochs[len(epochs)-min(limit, len(epochs)):] {
		out = append(out, im.Terms[e].Record)
	}
	return out
}

// termsSince are the last terms, from the one before the first that has changed
// since a revision: if nobody wrote how that one ended, its record has not.
func termsSince(im *cluster.Image, since store.Rev) []*pb.TermRecord {
	epochs := slices.Sorted(maps.Keys(im.Terms))
	first := slices.IndexFunc(epochs, func(e cluster.Epoch) bool { return im.Terms[e].ModRev > since })
	if first < 0 {
		return nil
	}
	return lastTerms(im, min(maxTerms, len(epochs)-max(first-1, 0)))
}

// statuses are all brokers that are live or have been.
func statuses(im *cluster.Image) []*pb.BrokerStatus {
	var out []*pb.BrokerStatus
	for _, id := range knownBrokers(im) {
		s := &pb.BrokerStatus{Id: int32(id)}
		if b := im.Brokers[id]; b != nil {
			s.Live, s.BrokerEpoch, s.Rack, s.State = true, int64(b.Epoch), b.Record.GetRack(), b.Record.GetState()
			s.Unreachable, s.RegisteredMs = b.Unreachable(), b.Record.GetRegisteredMs()
		}
		out = append(out, s)
	}
	return out
}

// knownBrokers are all that are live or have been, in order.
func knownBrokers(im *cluster.Image) []cluster.BrokerID {
	ids := slices.Concat(slices.Collect(maps.Keys(im.Brokers)), slices.Collect(maps.Keys(im.Nodes)))
	slices.Sort(ids)
	return slices.Compact(ids)
}
