package scenarios

import (
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// The first term is epoch 1, and every one after it one more, however the last
// one ended.
func TestEpochsCountTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a", brief)
	if got := w.active(1, soon); got != a || w.epoch() != 1 {
		t.Fatalf("%s is active under epoch %d", got.ID, w.epoch())
	}
	w.daemon("b", brief)
	w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(soon)

	resp, err := a.admin.ResignController(w.call(), &pb.ResignControllerRequest{Reason: "test"})
	if err != nil || resp.GetEpoch() != 1 {
		t.Fatalf("resign: %v, %v", resp, err)
	}
	second := w.active(2, soon)
	if second.ID != "b" {
		t.Errorf("%s follows, who resigned", second.ID)
	}
	second.kill()
	w.active(3, takeover)
	w.daemon("c", brief)
	w.active(3, soon).stop()
	w.active(4, soon)
	if w.epoch() != 4 {
		t.Errorf("epoch %d after four terms", w.epoch())
	}
	w.create("payments", 4, 3)
	w.converged(soon)
}
