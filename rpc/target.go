package rpc

import (
	"cmp"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

type targetPhase uint8

const (
	idle targetPhase = iota
	dialing
	open
)

// target is one incarnation of a broker as the active sees it.
type target struct {
	id      cluster.BrokerID
	epoch   cluster.BrokerEpoch
	address string

	phase     targetPhase
	stream    StreamID
	notBefore time.Duration // the next dial or send
	again     int           // failures since a command was admitted
	problem   string
	// knows is a controller epoch above that of the term, of which the broker has
	// heard, and since when we know; 0: none, or it obeys.
	knows      cluster.Epoch
	knowsSince time.Duration

	cursor   int64 // in the change list
	brokers  int64 // the set of live brokers sent last
	sequence int64
	since    int64 // answers to commands up to this one are of no interest any more
	unacked  int
	sentTimes
	confirmed int64         // the last mark up to which it has confirmed everything
	ping      time.Duration // sent last
	pong      time.Duration // heard last

	answers     bool          // on the open stream
	silentSince time.Duration // unless it answers

	probe    bool     // its death may be proved
	admitted bool     // a command on the newest stream
	redialed StreamID // the stream whose address is dialed; zero: none is

	owed

	resume   *pb.ResumePoint // what the broker said in its hello, until the stream begins
	sync     int64           // up to there in the change list it is told everything
	began    bool            // the cursor is set
	begins   bool            // the next word is the first since then
	told     store.Rev       // the resume point said last
	failures int64           // failed results heard on the stream

	scope      pb.MetadataScope
	mismatches int           // digests in a row that were wrong
	noCheck    time.Duration // no digest is looked at before

	replicas
	// fullSince is the revision at which the stream began to say everything; 0:
	// it went on from an earlier one, or has said which topics that covers.
	fullSince    store.Rev
	ghosts       store.Rev // the same, until the broker has forgotten the metadata of what is gone
	syncedAt     int64     // the structure of which
	syncedChunks int       // so many chunks of covered topics were sent

	burials
	leaving leaving
}

type retry struct {
	at      time.Duration
	wait    time.Duration
	epoch   cluster.LeaderEpoch // of the state that failed
	rev     store.Rev
	message string
	// restored: of an offline replica, whose storage came back since it was
	// tried last.
	restored bool
}

// opened notes what the broker says from where the stream can go on.
func (t *target) opened(now time.Duration, hello *pb.Hello) {
	t.phase, t.ping, t.pong, t.sequence, t.failures = open, now, now, 0, 0
	t.problem, t.admitted = "", false
	t.fromStart()
	t.resume = hello.GetResume()
}

func (t *target) fromStart() {
	t.cursor, t.brokers, t.unacked, t.since = 0, -1, 0, t.sequence
	t.resume, t.began, t.told, t.fullSince, t.ghosts = nil, false, 0, 0, 0
	t.owed, t.burials, t.leaving = newOwed(), newBurials(), newLeaving()
}

// restart says everything again on the same stream, after a while.
func (t *target) restart(now time.Duration) {
	t.fromStart()
	t.notBefore = now + backoff(t.again, MaxRetry)
	t.again++
}

func (t *target) closed(now time.Duration) {
	if t.answers {
		t.answers, t.silentSince = false, now
	}
	t.phase, t.owed, t.burials, t.leaving = idle, owed{}, burials{}, leaving{}
	t.notBefore = max(t.notBefore, now+backoff(t.again, maxRedial))
	t.again++
}

func backoff(again int, most time.Duration) time.Duration {
	return min(MinRetry<<min(again, 20), most)
}

// failed takes in that a state was not applied.
func (p *Pusher) failed(now time.Duration, t *target, id cluster.PartitionID, o *pb.PartitionOutcome) {
	le, message := cluster.LeaderEpoch(o.GetLeaderEpoch()), o.GetMessage()
	s := t.pending[id]
	if s.epoch > le {
		return // a newer state is on its way
	}
	t.answered(id)
	if t.offline[id] != nil || o.GetResult() == pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR {
		again := now + MaxRetry
		if r := t.offline[id]; r != nil && r.restored {
			again = now
		}
		p.wentOffline(t, id, le, message, again)
		return
	}
	r := t.retries[id]
	if r == nil {
		r = &retry{wait: MinRetry, rev: cmp.Or(s.rev, p.changes.revOf(id))}
		t.retry(id, r)
	} else {
		r.wait = min(2*r.wait, MaxRetry)
	}
	r.epoch, r.message = le, message
	t.tries.set(id, r, now+r.wait)
}

// crowded reports whether so many commands are unanswered that there is room for
// a chunk of changes only: what is tried again or deleted does not hold them up.
func (t *target) crowded() bool { return t.unacked+3 > window }

func (t *target) wake(now time.Duration) time.Duration {
	next := now + PingInterval
	if t.phase == open {
		next = min(t.ping+PingInterval, t.pong+PingTimeout)
	}
	if t.notBefore > now {
		return min(next, t.notBefore)
	}
	if t.phase != open || t.crowded() {
		return next // an answer has to come first
	}
	return max(now, t.stopAt(now, t.tries.soonest(t.triesOffline.soonest(t.leaving.tries.soonest(next)))))
}

// stepTarget opens the broker's stream and sends what is due on it. It returns
// how many states that took to build.
func (p *Pusher) stepTarget(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	if now < t.notBefore && t.phase != open {
		return out, 0
	}
	switch t.phase {
	case idle:
		p.streams++
		t.stream = StreamID{t.id, t.epoch, p.streams}
		t.phase = dialing
		return append(out, Dial{t.stream, t.address, t.probe}), 0
	case open:
		if now-t.pong >= PingTimeout {
			return p.hangUp(now, t, "ping unanswered", out), 0
		}
		if now-t.ping >= PingInterval {
			t.ping = now
			out = p.sendPing(im, t, out)
		}
		if now >= t.notBefore {
			return p.sendDue(now, im, t, out)
		}
	}
	return out, 0
}

// sendDue sends live brokers first, then what stops replicas, which frees the
// names of deleted topics, then partitions that are tried again, then one chunk
// of what changed after the cursor. It returns how many states that took to
// build.
func (p *Pusher) sendDue(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	if !t.began {
		p.beginSync(im, t)
	}
	if t.brokers != p.brokers && t.unacked < window {
		t.brokers = p.brokers
		out = p.sendMetadata(im, t, p.liveMetadata(im), nil, out)
	}
	out, n := p.sendStops(now, im, t, out)
	out, left := p.sendLeft(now, im, t, out)
	out, again := p.sendRetries(now, im, t, out)
	n += left + again
	if t.cursor == p.changes.last {
		if t.fullSince != 0 {
			out = p.finishSync(im, t, out)
		}
		out = p.dispelGhosts(im, t, out)
		if now >= t.ping+progressInterval && len(t.pending) == 0 && p.resumePoint(im, t) > t.told {
			t.ping = now
			out = p.sendPing(im, t, out)
		}
		return out, n
	}
	if t.unacked+2 > window { // a chunk takes up to two commands
		return out, n
	}
	c, sync := p.chunkAfter(im, t.cursor), t.cursor < t.sync
	t.cursor = c.end
	n += len(c.states) + len(c.removed) + len(c.configs)
	if c.empty() {
		return out, n
	}
	behind := p.progress(im, t) // once the whole chunk is accepted
	m := p.metadataOf(im, t, c)
	switch {
	case m == nil:
		return p.sendHosted(im, t, c, behind, out), n
	case sync && len(c.hosted(t.id)) > 0: // who is who before what is its own
		out = p.sendMetadata(im, t, m, nil, out)
		return p.sendHosted(im, t, c, behind, out), n
	}
	out = p.sendHosted(im, t, c, nil, out)
	return p.sendMetadata(im, t, m, behind, out), n
}

// sendRetries sends one command with replicas to be tried again, and returns how
// many they are.
func (p *Pusher) sendRetries(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	if t.crowded() {
		return out, 0
	}
	var b batch
	b.again(now, im, t, &t.tries, t.retries, t.settle)
	b.again(now, im, t, &t.triesOffline, t.offline, func(id cluster.PartitionID) { p.cameBack(t, id) })
	if len(b.states) == 0 {
		return out, 0
	}
	return p.sendHosted(im, t, p.build(b.states), nil, out), len(b.states)
}

// sendHosted sends the LeaderAndIsr of those states that the broker hosts.
func (p *Pusher) sendHosted(im *cluster.Image, t *target, c *chunk, behind *pb.Progress, out []PushAction) []PushAction {
	hosted := c.hosted(t.id)
	if len(hosted) == 0 {
		return out
	}
	for _, s := range hosted {
		rev := s.rev
		if r := t.retries[s.id]; r != nil && rev == 0 {
			rev = r.rev
		}
		t.owed.send(s.id, sent{s.p.LeaderEpoch, rev})
	}
	p.Stats.Sent += int64(len(hosted))
	return p.send(im, t, &pb.Command{Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: grouped(hosted)}}, Progress: behind}, out)
}

func (p *Pusher) send(im *cluster.Image, t *target, c *pb.Command, out []PushAction) []PushAction {
	return append(out, Send{Stream: t.stream, Request: p.command(im, t, c)})
}

// command stamps and numbers the next command to a broker.
func (p *Pusher) command(im *cluster.Image, t *target, c *pb.Command) *pb.CommandsRequest {
	t.sequence++
	t.unacked++
	*t.sentTimes.at(t.sequence) = p.now
	c.Sequence = t.sequence
	if t.begins && c.Progress == nil {
		c.Progress = p.progress(im, t)
	}
	if c.Progress != nil {
		c.Progress.Begins, t.begins = t.begins, false
		t.told = store.Rev(c.Progress.ResumePoint)
	}
	term := fencing.Term{ClusterUUID: im.Cluster.GetUuid(), ControllerID: p.self, Epoch: p.claim.Epoch}
	c.Stamp = term.Stamp(fencing.Target{Broker: t.id, Epoch: t.epoch}, im.Rev)
	return &pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: c}}
}

func liveBrokers(im *cluster.Image) *pb.LiveBrokers {
	live := &pb.LiveBrokers{}
	for _, b := range im.SortedBrokers() {
		live.Brokers = append(live.Brokers, &pb.LiveBroker{
			Id: int32(b.ID), BrokerEpoch: int64(b.Epoch), Endpoints: b.Record.GetEndpoints(), Rack: b.Record.GetRack(),
		})
	}
	return live
}
