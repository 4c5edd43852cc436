package sim

import (
	"errors"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/internal/unfenced"
	"github.com/controllerd/controllerd/rpc"
)

// within is how many seeds it may take to notice that a safety part is missing.
const within = 100

// A safety part that could be missing without anybody noticing is either not
// needed or not tested. With the part nothing is noticed on the same seed, though
// what would heal the damage is out as well.
func TestTakenOut(t *testing.T) {
	out := unfenced.Open()
	// One daemon does not hear of a change, and the next believes what it said.
	forgetful := []string{losesEvent, "resignation", "block edited"}
	nothing, healing := controller.TakenOut{}, controller.TakenOut{Push: rpc.PushTakenOut{Digest: out}}
	for _, part := range []struct {
		name string
		cfg  Config
		by   []error             // what may notice first
		with controller.TakenOut // what is out all the same
	}{
		{"claim guard", Config{Loop: controller.TakenOut{ClaimGuard: out}}, []error{ErrLateWrite, ErrPartitionState}, nothing},
		{"block guard", Config{Loop: controller.TakenOut{BlockGuard: out}}, []error{ErrPartitionState, ErrLateWrite}, nothing},
		// I1 to I6 do not need it: what is decided too early fails on the block
		// guard, again and again. What is answered without a write does need it.
		{"settled rule", Config{
			Loop: controller.TakenOut{Settled: out}, Faults: []string{"broker killed", "broker frozen", "noise"},
		}, []error{ErrTakenBack}, nothing},
		{"record last", Config{
			Loop: controller.TakenOut{RecordLast: out}, Faults: []string{"topic expanded", "noise"},
		}, []error{ErrNotConverged}, nothing},
		{"check of members' broker epochs", Config{
			Loop: controller.TakenOut{MemberEpoch: out}, Faults: []string{"follower bounced", "broker killed"},
		}, []error{ErrUnseenMember}, nothing},
		{"deadline", Config{Deadline: out, Faults: []string{"daemon frozen"}}, []error{ErrLateAct}, nothing},
		{"gate", Config{Gate: out}, []error{ErrStaleAccepted, ErrNotConverged}, nothing},
		{"gate's lock", Config{Lock: out}, []error{ErrStaleAccepted, ErrNotConverged}, nothing},
		{"resume point", Config{
			Loop:   controller.TakenOut{Push: rpc.PushTakenOut{ResumePoint: out, Digest: out}},
			Faults: []string{"stream torn within a chunk", "broker cut off", "block edited", "noise"},
		}, []error{ErrNotConverged}, healing},
		{"horizon", Config{
			Loop:   controller.TakenOut{Push: rpc.PushTakenOut{Horizon: out, Digest: out}},
			Faults: []string{"topic deleted, a broker away", "broker cut off", "daemon killed", "broker frozen"},
		}, []error{ErrNotConverged}, healing},
		{"history of the resume point", Config{
			Loop:   controller.TakenOut{Push: rpc.PushTakenOut{History: out, Digest: out}},
			Faults: []string{"broker of another history", "block edited"},
		}, []error{ErrNotConverged}, healing},
		{"digest", Config{Loop: controller.TakenOut{Push: rpc.PushTakenOut{Digest: out}}, Faults: forgetful}, []error{ErrNotConverged}, nothing},
	} {
		t.Run(part.name, func(t *testing.T) {
			for seed := uint64(1); seed <= within; seed++ {
				part.cfg.Seed = seed
				r := Run(part.cfg)
				broken := r.Broken()
				if broken == nil {
					continue
				}
				if !slices.ContainsFunc(part.by, func(want error) bool { return errors.Is(broken, want) }) {
					t.Errorf("without the %s %v, want one of %v", part.name, r.Violations[0], part.by)
				}
				t.Logf("without the %s, seed %d: %v", part.name, seed, r.Violations[0])
				if with := Run(Config{Seed: seed, Faults: part.cfg.Faults, Loop: part.with}); with.Broken() != nil {
					t.Errorf("with the %s too: %v", part.name, with.Violations[0])
				}
				return
			}
			t.Errorf("nobody notices in %d seeds that the %s is missing", within, part.name)
		})
	}
}

// It takes a fault to make a safety part needed: the invariants do not break by
// themselves.
func TestQuiet(t *testing.T) {
	out := unfenced.Open()
	for seed := uint64(1); seed <= 10; seed++ {
		r := Run(Config{Seed: seed, Quiet: true, Gate: out, Loop: controller.TakenOut{ClaimGuard: out, BlockGuard: out}})
		for _, v := range r.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
		if r.Terms != 1 {
			t.Errorf("seed %d: %d terms", seed, r.Terms)
		}
	}
}

// One seed is one run.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		a, b := Run(Config{Seed: seed}), Run(Config{Seed: seed})
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Errorf("seed %d: %d steps with hash %x, then %d steps with hash %x", seed, a.Steps, a.Hash, b.Steps, b.Hash)
		}
	}
}
