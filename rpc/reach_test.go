package rpc

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func (h *hub) wantsReach(answering, overdue []cluster.BrokerID, silent int) {
	h.t.Helper()
	r := h.p.Reach(h.now, UnreachableAfter)
	if !slices.Equal(r.Answering, answering) || !slices.Equal(r.Overdue, overdue) || r.Silent != silent {
		h.t.Fatalf("reach %+v, want answering %v, overdue %v, %d silent", r, answering, overdue, silent)
	}
}

// A broker is reached while it answers on an open stream; a hello alone proves
// nothing. The time in which it does not begins with the term, and goes on
// through attempts that fail and through changes of the address.
func TestReach(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.broker(2)
	h.broker(3, func(r *pb.BrokerRecord) { r.ControlAddress = "" }) // nobody tries to reach it
	h.begin(1)
	h.step()
	began := h.now
	h.wantsReach(nil, nil, 2)
	h.opens(1)
	h.opens(2)
	h.wantsReach(nil, nil, 2)
	h.step()
	h.admits(1)
	h.wantsReach([]cluster.BrokerID{1}, nil, 1)
	h.closes(2, errors.New("broken"))
	h.now = began + 8*time.Second
	h.step()
	h.opens(2) // and hangs again, without a word
	h.closes(2, errors.New("broken"))
	h.broker(2, func(r *pb.BrokerRecord) { r.ControlAddress = "elsewhere:1" })
	h.step()
	h.wantsReach([]cluster.BrokerID{1}, nil, 1)
	h.now = began + UnreachableAfter - 1
	h.wantsReach([]cluster.BrokerID{1}, nil, 1)
	h.now++
	h.wantsReach([]cluster.BrokerID{1}, []cluster.BrokerID{2}, 1)

	h.closes(1, errors.New("broken")) // it was silent for no time until now
	h.wantsReach(nil, []cluster.BrokerID{2}, 2)
	h.now += UnreachableAfter
	h.wantsReach(nil, []cluster.BrokerID{1, 2}, 2)
	h.gone(1)
	h.broker(1)
	h.step()
	h.wantsReach(nil, []cluster.BrokerID{2}, 2) // another incarnation
	h.opens(2)
	h.step()
	h.pong(2)
	h.wantsReach([]cluster.BrokerID{2}, nil, 1)

	h.note(h.p.End())
	h.now += time.Hour
	h.begin(2)
	h.step()
	h.wantsReach(nil, nil, 2)
}

// Somebody else answers at a broker's address: nothing is sent to it, the
// registration is looked at again, and so is the address, less and less often.
func TestPushStranger(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1))
	h.begin(1)
	h.step()
	wait := MinRetry
	for range 8 {
		h.wants("dial 1 at b1:1")
		h.take(Opened{h.streams[1], &pb.Hello{BrokerId: 2, ControllerEpoch: 9}})
		h.wants("hangup 1", "reread 1") // and no doubt: it may be of another cluster
		if got := h.p.Problems()[1]; got != "at b1:1 answers broker 2" {
			t.Errorf("problem %q", got)
		}
		h.after(wait - time.Millisecond)
		h.wants()
		h.hears(1)
		h.after(time.Millisecond)
		wait = min(2*wait, maxRedial)
	}
	h.done = nil
	h.broker(1, func(r *pb.BrokerRecord) { r.ControlAddress = "new:1" })
	h.step()
	h.wants("hangup 1", "dial 1 at new:1")
	h.opens(1)
	h.step()
	h.applies(1)
	if h.p.Pending() != 0 || len(h.p.Problems()) != 0 {
		t.Errorf("pending %d, problems %v", h.p.Pending(), h.p.Problems())
	}
}

// One that says so only when it is sent a command is left all the same.
func TestPushToSomebodyElse(t *testing.T) {
	for _, refusal := range []pb.Refusal{pb.Refusal_REFUSAL_WRONG_BROKER, pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID} {
		t.Run(refusal.String(), func(t *testing.T) {
			h := newHub(t)
			h.broker(1)
			h.topic("a", hostedBy(1))
			h.begin(1)
			h.step()
			wait := MinRetry
			for range 8 {
				h.wants("dial 1 at b1:1")
				h.opens(1)
				h.step()
				h.acks(1, refusal, 0)
				h.wants("hangup 1", "reread 1")
				h.acks(1, refusal, 0) // of the stream that was hung up
				if got := h.p.Problems()[1]; got != refusalWords(refusal) {
					t.Errorf("problem %q", got)
				}
				h.after(wait - time.Millisecond)
				h.wants()
				h.after(time.Millisecond)
				wait = min(2*wait, maxRedial)
			}
			h.wantsReach(nil, nil, 1)
		})
	}
}

// Contacts show up to where a broker was told everything, while that is known.
func TestContacts(t *testing.T) {
	h := connected(t, hostedBy(1))
	h.broker(2)
	h.step()
	h.closes(2, errors.New("refused"))
	h.change("a", 0, elect(1))
	h.step()
	before := h.p.Contacts(h.im)
	h.applies(1)
	after := h.p.Contacts(h.im)
	if b, a := before[1].ResumePoint, after[1].ResumePoint; b >= a || a != h.im.Rev {
		t.Errorf("told up to %d, then up to %d of %d", b, a, h.im.Rev)
	}
	if got := after[2]; got != (Contact{Problem: "refused"}) || len(after) != 2 {
		t.Errorf("contacts %+v", after)
	}
}
