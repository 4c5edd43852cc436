package rpc

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// maxRemembered is how many changes a Feed remembers.
const maxRemembered = 100_000

// Feed remembers what has changed since the daemon read the cluster, the
// newest change of each thing only, for clients that watch the metadata. It
// belongs to the owner of the image.
type Feed struct {
	changes *changeList
	most    int
	begun   bool
	// horizon: what changed up to this revision may not be in the list.
	horizon   store.Rev
	forgotten int64 // the highest sequence number that was taken out for room
}

// What a change in the list is about, besides a partition.
const (
	wholeTopic = -1 // its record
	allBrokers = -2 // with no topic id
	theSeat    = -3 // with no topic id; the lowest
)

var (
	brokersChanged = cluster.PartitionID{Index: allBrokers}
	seatChanged    = cluster.PartitionID{Index: theSeat}
)

// NewFeed is the feed of an image that has seen nothing yet.
func NewFeed() *Feed { return &Feed{changes: newChangeList(), most: maxRemembered} }

// Begun reports whether it has observed anything.
func (f *Feed) Begun() bool { return f.begun }

// Observe takes in what a batch has changed. What the first one shows is not
// remembered: whoever does not know it is told the whole image.
func (f *Feed) Observe(im *cluster.Image, events []cluster.Event) {
	if !f.begun {
		f.begun, f.horizon = im.Rev > 0, im.Rev
		return
	}
	for _, ev := range events {
		switch ev := ev.(type) {
		case cluster.PartitionChanged:
			f.changes.touch(ev.ID, im.Rev)
		case cluster.TopicAdded:
			f.topic(ev.Topic, im.Rev)
		case cluster.TopicChanged:
			f.topic(ev.New, im.Rev)
		case cluster.TopicGone:
			f.topic(ev.Topic, im.Rev)
		case cluster.BrokerUp, cluster.BrokerDown, cluster.BrokerRestarted, cluster.BrokerChanged:
			f.changes.touch(brokersChanged, im.Rev)
		case cluster.LeaderChanged:
			f.changes.touch(seatChanged, im.Rev)
		}
	}
	if seq, rev := f.changes.trim(f.most); seq != 0 {
		f.forgotten, f.horizon = seq, max(f.horizon, rev)
	}
}

func (f *Feed) topic(t *cluster.Topic, rev store.Rev) {
	f.changes.touch(cluster.PartitionID{Topic: t.ID, Index: wholeTopic}, rev)
}

// trim takes out the oldest changes but for so many, and returns the newest of
// those that it took out.
func (l *changeList) trim(most int) (seq int64, rev store.Rev) {
	if l.size <= most {
		return 0, 0
	}
	out := l.size - most*9/10 // not for each change anew
	for _, e := range slices.Clone(l.log) {
		if out == 0 {
			break
		}
		if !e.dead() {
			seq, rev = e.seq, e.rev
			l.remove(e.change().id)
			out--
		}
	}
	return seq, rev
}

// reader is one client's place in a Feed. A client that was told nothing yet,
// or of which the Feed does not know any more what it missed, is told the
// whole image, topic by topic, and then what has changed meanwhile.
type reader struct {
	topics  map[string]bool // nil: all
	from    store.Rev       // what the client knows already; 0: nothing
	details bool

	began   bool
	walking bool // telling the whole image
	left    []*cluster.Topic
	index   int32 // of the first partition of left[0] that was not told
	cursor  int64
	told    bool      // the client has heard that it knows everything
	skipped int       // changes of no interest since it heard so last
	terms   store.Rev // up to which it was told the history of terms
}

// next is the next response, nil if there is nothing to tell.
func (r *reader) next(im *cluster.Image, f *Feed) *pb.WatchMetadataResponse {
	switch {
	case !f.begun || im.Rev < r.from:
		return nil
	case !r.began && r.from != 0 && r.from >= f.horizon:
		r.began, r.cursor, r.terms = true, f.changes.upTo(r.from), r.from
	case !r.began || r.cursor < f.forgotten:
		*r = reader{topics: r.topics, from: r.from, details: r.details, began: true, walking: true, left: im.SortedTopics(), cursor: f.changes.last}
		p := newPiece(r.details)
		p.resp.Snapshot = true
		p.brokers(im)
		r.seat(im, p)
		return p.resp
	}
	if r.told && r.cursor == f.changes.last {
		return nil
	}
	p := newPiece(r.details)
	if r.walking && !r.walk(im, p) {
		return p.resp
	}
	if !r.follow(im, f, p) {
		return p.resp
	}
	if r.told && p.empty() && r.skipped < maxStates {
		return nil
	}
	r.told, r.skipped = true, 0
	p.resp.Revision = int64(im.Rev)
	return p.resp
}

func (r *reader) wants(t *cluster.Topic) bool { return r.topics == nil || r.topics[t.Name] }

// walk tells more of the whole image, and reports whether that was all.
func (r *reader) walk(im *cluster.Image, p *piece) bool {
	for ; len(r.left) > 0; r.left, r.index = r.left[1:], 0 {
		t := im.TopicByID(r.left[0].ID)
		if t == nil || !r.wants(t) {
			continue // one that is gone is a change by now
		}
		p.topic(t)
		for ; r.index < t.Made(); r.index++ {
			part := im.Partition(cluster.PartitionID{Topic: t.ID, Index: r.index})
			if !p.fits(t, part) {
				return false
			}
			p.partition(t, r.index, part)
		}
	}
	r.walking, r.left = false, nil
	return true
}

// follow tells more of what has changed, and reports whether that was all.
func (r *reader) follow(im *cluster.Image, f *Feed, p *piece) bool {
	end := f.changes.last
	f.changes.after(r.cursor, func(c change) bool {
		t := im.TopicByID(c.id.Topic)
		switch {
		case c.id == brokersChanged:
			p.brokers(im)
		case c.id == seatChanged && r.details:
			r.seat(im, p)
		case t == nil && c.id.Index == wholeTopic:
			p.resp.Gone = append(p.resp.Gone, c.id.Topic[:])
			p.states++
		case t == nil || !r.wants(t) || c.id.Index >= t.Made():
			r.skipped++
		case c.id.Index == wholeTopic:
			p.topic(t)
			p.states++
		default:
			part := im.Partition(c.id)
			if !p.fits(t, part) {
				end = c.seq - 1
				return false
			}
			p.partition(t, c.id.Index, part)
		}
		if p.full() && c.seq < end {
			end = c.seq
			return false
		}
		return true
	})
	r.cursor = end
	return end == f.changes.last
}

// piece is a response that is being made.
type piece struct {
	resp   *pb.WatchMetadataResponse
	at     map[cluster.TopicID]*pb.TopicMetadata
	size   int // of the encoding in bytes, at most
	states int

	details bool
}

func newPiece(details bool) *piece {
	return &piece{resp: &pb.WatchMetadataResponse{}, at: map[cluster.TopicID]*pb.TopicMetadata{}, details: details}
}

func (p *piece) empty() bool {
	return p.states == 0 && p.resp.LiveBrokers == nil && p.resp.Seat == nil
}
func (p *piece) full() bool { return p.size > maxChunk || p.states >= maxStates }

// fits makes room for a partition. One that is larger than a response goes
// alone.
func (p *piece) fits(t *cluster.Topic, part *cluster.Partition) bool {
	size := 96 + len(t.Name)
	if part != nil {
		size = estimate(t, part)
	}
	if p.states > 0 && (p.states >= maxStates || p.size+size > maxChunk) {
		return false
	}
	p.size += size
	p.states++
	return true
}

func (p *piece) brokers(im *cluster.Image) {
	p.resp.LiveBrokers = liveBrokers(im)
	if p.details {
		p.resp.Brokers = statuses(im)
	}
	p.size += proto.Size(p.resp)
}

func (p *piece) topic(t *cluster.Topic) *pb.TopicMetadata {
	m := p.at[t.ID]
	if m == nil {
		m = &pb.TopicMetadata{TopicId: t.ID[:], Topic: t.Name, PartitionCount: t.Made()}
		p.at[t.ID] = m
		p.resp.Topics = append(p.resp.Topics, m)
		p.size += 64 + len(t.Name)
	}
	return m
}

func (p *piece) partition(t *cluster.Topic, index int32, part *cluster.Partition) {
	m := p.topic(t)
	if part == nil {
		m.Unknown = append(m.Unknown, index)
		return
	}
	told := &pb.PartitionMetadata{
		Partition: index, Leader: int32(part.Leader), LeaderEpoch: int32(part.LeaderEpoch), PartitionEpoch: int32(part.PartitionEpoch),
		Isr: cluster.WireIDs(part.ISR), Replicas: cluster.WireIDs(part.Replicas),
	}
	if p.details {
		told.Cause, told.ChangedMs, told.ControllerEpoch = part.Cause, part.ChangedMs, int64(part.ControllerEpoch)
	}
	m.Partitions = append(m.Partitions, told)
}
