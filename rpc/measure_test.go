package rpc

import (
	"errors"
	"slices"
	"testing"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// wantsMark checks whether all was told that there was at the mark, and
// confirmed.
func (h *hub) wantsMark(when string, told, acked bool) {
	h.t.Helper()
	if h.p.Told() != told || h.p.Acked() != acked {
		h.t.Fatalf("%s: told %v, acked %v, want %v and %v", when, h.p.Told(), h.p.Acked(), told, acked)
	}
}

// A mark is reached when every broker that can be reached has been told, and
// has confirmed, what there was then. What changes later does not count.
func TestMark(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.broker(2)
	h.topic("a", hostedBy(1), hostedBy(1))
	h.begin(1)
	h.p.Mark()
	h.wantsMark("before the first step", false, false)
	h.step()
	h.wantsMark("being dialed", false, false)
	h.opens(1)
	h.step()
	h.wantsMark("one is told", false, false)
	h.closes(2, errors.New("refused"))
	h.wantsMark("the other cannot be reached", true, false)
	for len(h.unacked[1]) > 0 {
		h.admits(1)
	}
	h.wantsMark("admitted", true, false)
	h.result(1, "a", 0, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.wantsMark("one of two applied", true, false)
	h.result(1, "a", 1, 0, pb.PartitionResult_PARTITION_RESULT_FAILED)
	h.wantsMark("the other failed", true, true)
	h.change("a", 0, elect(1))
	h.step()
	h.wantsMark("a later change", true, true)
	h.p.Mark()
	h.wantsMark("the next mark", true, false)
}

func TestBacklogs(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.broker(2)
	h.topic("a", hostedBy(2, 1), hostedBy(2))
	h.begin(1)
	h.step()
	h.opens(2)
	h.step()
	h.closes(1, errors.New("refused"))
	if got, want := h.p.Backlogs(), []Backlog{{1, false, 0}, {2, true, 2}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	h.admits(2)
	h.result(2, "a", 0, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.result(2, "a", 1, 0, pb.PartitionResult_PARTITION_RESULT_FAILED)
	if got, want := h.p.Backlogs(), []Backlog{{1, false, 0}, {2, true, 1}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Commands are counted by what the gate says, and by how long that takes.
func TestAcksAreMeasured(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1))
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	h.now += 30 * time.Millisecond
	h.admits(1)
	h.now += 10 * time.Millisecond
	h.acks(1, pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH, 2)
	if s := h.p.Stats; s.AckTime.Count() != 2 || s.AckTime.Sum != 70*time.Millisecond ||
		s.Refusals != (Refusals{pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH: 1}) || s.Refused != 1 {
		t.Errorf("%d answers within %v in all, refused %v", s.AckTime.Count(), s.AckTime.Sum, s.Refusals)
	}
	var r Refusals
	r.add(refusalKinds) // of a version to come
	for kind := range pb.Refusal_name {
		if kind > 0 {
			r.add(pb.Refusal(kind))
		}
	}
	if r != (Refusals{0, 1, 1, 1, 1, 1}) {
		t.Errorf("each kind once: %v", r)
	}
}
