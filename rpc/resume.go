package rpc

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// progressInterval is how long a broker that has been told everything waits at
// least to hear so.
const progressInterval = 100 * time.Millisecond

// beginSync sets the cursor of a stream that has just opened: where the broker
// says that an earlier one has ended, if that can be believed, or else at the
// beginning.
func (p *Pusher) beginSync(im *cluster.Image, t *target) {
	t.began, t.begins, t.cursor, t.sync = true, true, 0, 0
	if w := p.believable(im, t.resume); w != 0 {
		t.cursor = p.changes.upTo(w)
		p.Stats.Resumed++
	} else {
		t.fullSince, t.ghosts, t.syncedChunks = im.Rev, im.Rev, 0
		t.sync = p.changes.last
		p.Stats.FullSyncs++
	}
	t.resume = nil
}

// believable is the revision up to which a broker knows everything, 0 if it
// does not say so in a way that this history confirms: the term that told it
// must be one that the image holds, won at the same revision, and nothing may
// have been forgotten since.
func (p *Pusher) believable(im *cluster.Image, r *pb.ResumePoint) store.Rev {
	w := store.Rev(r.GetRevision())
	term := im.Keys.Term(cluster.Epoch(r.GetControllerEpoch()))
	switch {
	case w == 0:
	case !p.TakenOut.History.IsOpen() && (w > im.Rev || im.CreateRev(term) == 0 || im.CreateRev(term) != store.Rev(r.GetClaimRevision())):
		p.Stats.Foreign++
	case w < max(im.Horizon, p.forgotten) && !p.TakenOut.Horizon.IsOpen():
		p.Stats.Forgotten++
	default:
		return w
	}
	return 0
}

// resumePoint is the revision up to which the broker has been told everything
// and has applied it: one below the lowest that is unsent or unanswered. It is 0
// until all of the last list is.
func (p *Pusher) resumePoint(im *cluster.Image, t *target) store.Rev {
	w := im.Rev
	if p.TakenOut.ResumePoint.IsOpen() {
		return w
	}
	if next := p.changes.nextRev(t.cursor); next != 0 {
		w = min(w, next-1)
	}
	if rev, ok := t.revs.lowest(); ok {
		w = min(w, rev-1)
	}
	if w < im.Horizon { // all before the last list has its revision here, and another one elsewhere
		return 0
	}
	return w
}

func (p *Pusher) progress(im *cluster.Image, t *target) *pb.Progress {
	return &pb.Progress{
		ControllerEpoch: int64(p.claim.Epoch), ClaimRevision: int64(p.claim.Rev),
		ResumePoint: int64(p.resumePoint(im, t)), Failures: t.failures,
	}
}

// sendPing asks whether the broker is there, and says what it has been told.
func (p *Pusher) sendPing(im *cluster.Image, t *target, out []PushAction) []PushAction {
	ping := &pb.Ping{}
	if t.began && !t.begins {
		ping.Progress = p.progress(im, t)
		t.told = store.Rev(ping.Progress.ResumePoint)
	}
	return append(out, Send{Stream: t.stream, Request: &pb.CommandsRequest{Request: &pb.CommandsRequest_Ping{Ping: ping}}})
}
