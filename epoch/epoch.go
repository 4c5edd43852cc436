package epoch

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// TermsKept is how many terms the history holds.
const TermsKept = 1000

// ErrClaimLost says that the seat or the epoch key was written or deleted
// since the claim was won: the term is over.
var ErrClaimLost = errors.New("epoch: claim lost")

// Claim is one won election: the epoch, and the revision at which both the
// seat and the epoch key were written. The zero Claim is none.
type Claim struct {
	Epoch cluster.Epoch
	Rev   store.Rev
}

// Guard are the conditions of every transaction of the term. Both compare mod
// revisions: a value would let a later term of the same daemon pass the guard
// of its earlier one, and a create revision would survive an overwrite.
func (c Claim) Guard(k cluster.Keys) []store.Cond {
	return []store.Cond{
		store.ModRevIs(k.Controller(), c.Rev),
		store.ModRevIs(k.ControllerEpoch(), c.Rev),
	}
}

// Holds reports whether the image shows that the claim still stands.
func (c Claim) Holds(im *cluster.Image) bool {
	return c.Rev != 0 && im.ModRev(im.Keys.Controller()) == c.Rev && im.ModRev(im.Keys.ControllerEpoch()) == c.Rev
}

// Won is the claim that the image shows for the process with that nonce and
// lease, if any. A seat whose epoch key was written at another revision is
// none: somebody has written one of them by hand.
func Won(im *cluster.Image, nonce string, lease store.LeaseID) (Claim, bool) {
	c := im.Controller
	if c == nil || c.Record.GetNonce() != nonce || c.Lease != lease || c.ModRev != im.EpochRev || im.Epoch == 0 {
		return Claim{}, false
	}
	return Claim{Epoch: im.Epoch, Rev: c.ModRev}, true
}

// Vacant reports whether the image shows that nobody can act in the seat: the
// key is missing, or was put by hand without a lease, so that nothing would
// ever free it.
func Vacant(im *cluster.Image) bool { return im.Controller == nil || im.Controller.Lease == 0 }

// Mint is the transaction that wins the seat and raises the epoch, in one. It
// fails if somebody holds the seat, if the epoch key is not the one that the
// image shows, or if the epoch was won before: a claim from an old image may
// arrive late, and find the epoch key missing as it was then. The new epoch is
// above every one seen anywhere, so a lost epoch key cannot make it fall. As
// long as a recovery is not finished nobody wins.
func Mint(im *cluster.Image, who *pb.ControllerRecord, nowMs int64) store.Txn {
	k := im.Keys
	next := im.MaxEpoch() + 1
	term := &pb.TermRecord{
		Epoch:      int64(next),
		Controller: who.GetId(),
		Nonce:      who.GetNonce(),
		Endpoint:   who.GetEndpoint(),
		BeganMs:    nowMs,
	}
	seat := store.Missing(k.Controller())
	if im.Controller != nil && Vacant(im) {
		seat = store.ModRevIs(k.Controller(), im.Controller.ModRev)
	}
	txn := store.Txn{
		If: []store.Cond{
			seat,
			store.ModRevIs(k.ControllerEpoch(), im.EpochRev),
			store.Missing(k.Term(next)),
			store.Missing(k.Recovery()),
		},
		Then: []store.Op{
			store.PutLeased(k.Controller(), cluster.Encode(who), store.LeaseID(who.GetLease())),
			store.Put(k.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: int64(next)})),
			store.Put(k.Term(next), cluster.Encode(term)),
		},
	}
	if old := next - TermsKept; old > 0 {
		txn.Then = append(txn.Then, store.Delete(k.Term(old)))
	}
	return txn
}

// End says why a term ends.
type End struct {
	Cause     pb.EndCause
	Reason    string
	Successor string // the id that the others leave the seat to; may be empty
}

// Release is the transaction that gives the seat up: it deletes the seat and
// the candidate key of the lease, and writes the end into the history.
func Release(im *cluster.Image, c Claim, lease store.LeaseID, end End, nowMs int64) store.Txn {
	k := im.Keys
	txn := store.Txn{
		If:   c.Guard(k),
		Then: []store.Op{store.Delete(k.Controller()), store.Delete(k.Candidate(lease))},
	}
	if t := im.Terms[c.Epoch]; t != nil {
		r := proto.Clone(t.Record).(*pb.TermRecord)
		r.EndCause, r.EndReason, r.Successor, r.EndedMs = end.Cause, end.Reason, end.Successor, nowMs
		txn.Then = append(txn.Then, store.Put(k.Term(c.Epoch), cluster.Encode(r)))
	}
	return txn
}
