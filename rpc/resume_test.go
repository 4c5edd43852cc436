package rpc

import (
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// termOf writes the history of the first term as the election does, and begins
// it.
func (h *hub) termOf(e cluster.Epoch) {
	h.t.Helper()
	h.write(store.Put(keys.Term(e), cluster.Encode(&pb.TermRecord{Epoch: int64(e)})))
	h.begin(e)
}

// lastProgress is what the broker was told last.
func (h *hub) lastProgress(id cluster.BrokerID) *pb.Progress {
	h.t.Helper()
	for i := len(h.sent[id]) - 1; i >= 0; i-- {
		if p := h.sent[id][i].GetPing().GetProgress(); p != nil {
			return p
		}
		if p := h.sent[id][i].GetCommand().GetProgress(); p != nil {
			return p
		}
	}
	h.t.Fatalf("broker %d was told no progress", id)
	return nil
}

// resumable is a hub whose broker 1 has heard everything of term 1 and said so.
func resumable(t *testing.T) (*hub, *pb.ResumePoint) {
	t.Helper()
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1), hostedBy(1))
	h.termOf(1)
	h.step()
	h.opens(1)
	h.step()
	h.applies(1)
	h.after(progressInterval)
	p := h.lastProgress(1)
	if store.Rev(p.GetResumePoint()) != h.im.Rev {
		t.Fatalf("told %v, the image is at %d", p, h.im.Rev)
	}
	h.sent[1] = nil
	return h, &pb.ResumePoint{ControllerEpoch: p.GetControllerEpoch(), ClaimRevision: p.GetClaimRevision(), Revision: p.GetResumePoint()}
}

// again ends the term, begins the next one and opens the broker's stream.
func (h *hub) again(from *pb.ResumePoint) {
	h.t.Helper()
	old := h.streams[1]
	h.note(h.p.End())
	h.take(Closed{Stream: old})
	h.termOf(2)
	h.step()
	h.sent[1] = nil
	h.resumes(1, from)
	h.step()
}

func TestResume(t *testing.T) {
	all := []string{"live 1", "meta a/0@0 a/1@0", "lai a/0@0 a/1@0"}
	for name, c := range map[string]struct {
		change func(h *hub, from *pb.ResumePoint)
		want   []string
	}{
		"nothing has changed":  {func(*hub, *pb.ResumePoint) {}, []string{"live 1"}},
		"one partition has":    {func(h *hub, _ *pb.ResumePoint) { h.change("a", 1, elect(1)) }, []string{"live 1", "lai a/1@1", "meta a/1@1"}},
		"a term that is none":  {func(_ *hub, r *pb.ResumePoint) { r.ControllerEpoch = 7 }, all},
		"a term won elsewhere": {func(_ *hub, r *pb.ResumePoint) { r.ClaimRevision-- }, all},
		"a future":             {func(_ *hub, r *pb.ResumePoint) { r.Revision = 1 << 40 }, all},
		"nothing known":        {func(_ *hub, r *pb.ResumePoint) { r.Revision = 0 }, all},
		"negative":             {func(_ *hub, r *pb.ResumePoint) { r.Revision = -1 }, all},
		"before the list": {func(h *hub, _ *pb.ResumePoint) {
			h.write(store.Put(keys.Node(9), nil))
			h.relist()
		}, all},
		"before a removal": {func(h *hub, _ *pb.ResumePoint) {
			h.topic("b", hostedBy(1))
			h.write(store.Delete(keys.Topic("b")))
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			h, from := resumable(t)
			c.change(h, from)
			h.again(from)
			h.hears(1, c.want...)
			if resumed := h.p.Stats.Resumed == 1; resumed != (len(c.want) == 1 || c.want[1] != all[1]) {
				t.Errorf("%d streams resumed, %d began from nothing", h.p.Stats.Resumed, h.p.Stats.FullSyncs)
			}
		})
	}
}

// relist shows the image everything at once, as after a compaction.
func (h *hub) relist() {
	list := h.m.List(keys.Prefix(), false)
	b := store.Batch{Rev: list.Rev, Reset: true}
	for _, kv := range list.KVs {
		b.Changes = append(b.Changes, store.Change{KV: kv})
	}
	h.p.Observe(h.im.Apply(b))
}

// What changed before a list is known without the revisions of the changes: until
// the broker has been told all of it, there is no point from which a daemon that
// knows them could go on.
func TestNoResumePointBelowTheList(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1), hostedBy(1))
	h.relist() // the daemon has just started
	h.termOf(1)
	h.step()
	h.opens(1)
	h.step()
	if p := h.sent[1][0].GetCommand().GetProgress(); !p.GetBegins() || p.GetResumePoint() != 0 {
		t.Errorf("a full sync begins with %v, the list is of revision %d", p, h.im.Horizon)
	}
	h.applies(1)
	h.after(progressInterval)
	if got := store.Rev(h.lastProgress(1).GetResumePoint()); got != h.im.Rev {
		t.Errorf("when all is applied the resume point is %d, want %d", got, h.im.Rev)
	}
	p := h.im.Partition(cluster.PartitionID{Topic: h.topics["a"]}).Clone()
	p.PartitionEpoch++
	elect(1)(&p)
	missed := store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: []store.Op{h.block(h.topics["a"], 0, &p)}}
	if _, err := h.m.Txn(missed); err != nil {
		t.Fatal(err)
	}
	h.relist()
	if got := h.p.resumePoint(h.im, h.p.targets[1]); got != 0 {
		t.Errorf("after another list, of revision %d, it is %d", h.im.Horizon, got)
	}
	h.step()
	h.applies(1)
	h.after(progressInterval)
	if got := store.Rev(h.lastProgress(1).GetResumePoint()); got != h.im.Rev {
		t.Errorf("when all is applied again the resume point is %d, want %d", got, h.im.Rev)
	}
}

// What is unanswered or failed holds the resume point back.
func TestResumePointIsHeldBack(t *testing.T) {
	h, _ := resumable(t)
	before := h.im.Rev
	h.change("a", 0, elect(1))
	h.step()
	h.change("a", 1, elect(1))
	h.step()
	if got := store.Rev(h.lastProgress(1).GetResumePoint()); got != before {
		t.Errorf("resume point %d while the first change is unanswered, want %d", got, before)
	}
	for range 4 {
		h.admits(1)
	}
	h.result(1, "a", 1, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	h.after(PingInterval)
	if p := h.lastProgress(1); store.Rev(p.GetResumePoint()) != before || p.GetFailures() != 1 {
		t.Errorf("told %v while the first change has failed, want %d", p, before)
	}
	h.applies(1)
	h.after(PingInterval)
	if got := store.Rev(h.lastProgress(1).GetResumePoint()); got != h.im.Rev {
		t.Errorf("resume point %d at rest, want %d", got, h.im.Rev)
	}
}

// A broker that holds something else than it was told is told everything, once
// a minute at first and then less often.
func TestDigestMismatch(t *testing.T) {
	h, _ := resumable(t)
	d := &cluster.Digest{}
	for i := range int32(2) {
		d.Add(cluster.PartitionID{Topic: h.topics["a"], Index: i}, 0, 0)
	}
	pong := func(sum uint64) {
		h.says(1, &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{
			Hosted: &pb.Digest{Count: d.Count, Sum: sum}, Metadata: &pb.Digest{Count: d.Count, Sum: d.Sum},
		}}})
		h.step()
		h.applies(1)
	}
	pong(d.Sum)
	h.hears(1)
	pong(d.Sum + 1)
	h.hears(1, "live 1", "meta a/0@0! a/1@0!", "lai a/0@0! a/1@0!")
	pong(d.Sum + 1)
	h.hears(1)
	if h.p.Stats.Mismatched != 1 {
		t.Errorf("counted %d", h.p.Stats.Mismatched)
	}
	h.now += mismatchPause
	pong(d.Sum + 1)
	if h.p.Stats.Mismatched != 2 {
		t.Errorf("counted %d after a minute", h.p.Stats.Mismatched)
	}
	h.now += mismatchPause + time.Second
	pong(d.Sum + 1)
	if h.p.Stats.Mismatched != 2 {
		t.Errorf("counted %d, the pause should double", h.p.Stats.Mismatched)
	}
}

// What a full window keeps from a broker that hosts none of it holds the resume
// point back all the same.
func TestResumePointOfUnsentMetadata(t *testing.T) {
	h, _ := resumable(t)
	h.broker(2)
	h.topic("b", hostedBy(2))
	before := h.im.Rev
	for sent := -1; sent < len(h.unacked[1]); {
		sent, before = len(h.unacked[1]), h.im.Rev
		h.change("b", 0, elect(2))
		h.step()
	}
	h.after(PingInterval)
	if p := h.lastProgress(1); store.Rev(p.GetResumePoint()) != before {
		t.Errorf("told %v, want %d: the last change was not sent", p, before)
	}
	h.applies(1)
	h.after(PingInterval)
	if p := h.lastProgress(1); store.Rev(p.GetResumePoint()) != h.im.Rev {
		t.Errorf("told %v at rest, want %d", p, h.im.Rev)
	}
}

// A digest from before a command was admitted says nothing.
func TestDigestWhileCommandsAreUnanswered(t *testing.T) {
	h, _ := resumable(t)
	h.change("a", 0, elect(1))
	h.step()
	d := &cluster.Digest{}
	for i := range int32(2) {
		d.Add(cluster.PartitionID{Topic: h.topics["a"], Index: i}, 0, 0)
	}
	h.says(1, &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{
		Hosted: &pb.Digest{Count: d.Count, Sum: d.Sum}, Metadata: &pb.Digest{Count: d.Count, Sum: d.Sum},
	}}})
	if h.p.Stats.Mismatched != 0 {
		t.Error("compared with what is on its way")
	}
}
