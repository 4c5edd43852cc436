package broker

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
)

// ProposeISR is how the leader of a partition asks for another ISR. It returns
// at once; done is called when the proposal is decided, once, by a goroutine
// of the broker that calls one after the other: it must not block.
//
// Proposals are sent as Kafka's leader sends them: one request at a time, with
// all partitions that have one, the newest of each. One that was sent is sent
// again until it is decided, without limit, at the next daemon if one does not
// answer or is not active; a newer one of its partition waits for that. A
// committed ISR is adopted as if a command had brought it, before done is
// called. From the call on the proposal counts in ISR.
//
// A member that may not join (INELIGIBLE_REPLICA: it is draining, not live, or
// has started again) makes the controller refuse the whole change of its
// partition. A leader that lets in one replica a change keeps out no other.
//
// done gets a result if the controller decided, and otherwise an error:
// ErrOvertaken, ErrClosed, or the refusal of the whole request as one that
// makes no sense, for which see ReasonOf. ProposeISR itself returns ErrClosed,
// and then done is not called.
func (b *Broker) ProposeISR(c IsrChange, done func(IsrResult, error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || b.proposals.closed {
		return ErrClosed
	}
	if b.proposals.add(&proposal{change: c, done: done}) {
		b.work.Go(b.propose)
	}
	return nil
}

// ISR is the committed and the maximal ISR of a partition that this broker
// leads, false if it does not.
//
// The high watermark is what every member of the maximal ISR has: a replica
// that was proposed may be in the ISR already, and the leader of tomorrow. So
// a proposed expansion counts from the call of ProposeISR on, and a proposed
// shrink only when it is committed. A refusal takes a replica out again if it
// says that the state is still the one that the proposal was decided from
// (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED); after any other one it stays
// until a newer state of the partition arrives.
//
// What AlterPartition was called with is not in it.
func (b *Broker) ISR(p cluster.PartitionID) (IsrView, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.gate.Replica(p)
	if !ok || s.Leader != b.cfg.ID {
		return IsrView{}, false
	}
	return b.proposals.view(&s), true
}

// propose sends what is proposed until there is nothing left.
func (b *Broker) propose() {
	select {
	case <-b.registered:
	case <-b.ctx.Done():
	}
	for c := (course{rng: newRand()}); b.ctx.Err() == nil; {
		b.mu.Lock()
		batch, answers := b.proposals.take()
		b.mu.Unlock()
		deliver(answers)
		if len(batch)+len(answers) == 0 {
			return
		}
		if len(batch) > 0 {
			b.sendProposals(&c, batch)
		}
	}
	b.mu.Lock()
	answers := b.proposals.close(ErrClosed)
	b.mu.Unlock()
	deliver(answers)
}

func deliver(answers []answer) {
	for _, a := range answers {
		if a.to.done != nil {
			a.to.done(a.result, a.err)
		}
	}
}

// sendProposals makes one attempt for a batch. What is to be sent again waits
// its turn, after a pause.
func (b *Broker) sendProposals(c *course, batch []*proposal) {
	changes := make([]IsrChange, len(batch))
	for i, p := range batch {
		changes[i] = p.change
	}
	resp, err := b.alterOnce(b.ctx, c.at, alterRequest(changes))
	if err != nil {
		b.undecided(batch, err)
		b.log.Debug("cannot propose ISRs", "partitions", len(batch), "error", err)
		_ = pause(b.ctx, c.after(err)) // the caller sees that the context has ended
		return
	}
	if b.decided(batch, alterAnswers(resp)) {
		*c = course{at: c.at, rng: c.rng}
		return
	}
	_ = pause(b.ctx, c.after(nil))
}

// undecided takes in that a request failed. One that makes no sense is given
// up, with all that was in it.
func (b *Broker) undecided(batch []*proposal, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if status.Code(err) != codes.InvalidArgument {
		b.proposals.again(batch)
		return
	}
	for _, p := range batch {
		b.proposals.decided(p, IsrResult{Partition: p.change.Partition}, err)
	}
}

// decided takes in the results of a request, in one step with what they do to
// the states that the broker holds. It reports whether that was all.
func (b *Broker) decided(batch []*proposal, results map[cluster.PartitionID]IsrResult) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var again []*proposal
	for _, p := range batch {
		id := p.change.Partition
		r, ok := results[id]
		if !ok || !final(r.Reason) {
			again = append(again, p)
			continue
		}
		b.proposals.decided(p, r, nil)
		b.adoptLocked([]IsrResult{r})
		if s, ok := b.gate.Replica(id); ok {
			b.proposals.forget(id, &s)
		}
	}
	b.proposals.again(again)
	return len(again) == 0
}
