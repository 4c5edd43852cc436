package etcdstore_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/store/memstore"
	"github.com/controllerd/controllerd/store/storetest"
)

var (
	seed = flag.Uint64("seed", 1, "first seed of the comparison of etcd with memstore")
	runs = flag.Uint64("runs", 4, "number of seeds of the comparison of etcd with memstore")
)

func harness(t *testing.T) storetest.Harness {
	c := etcdtest.Start(t, etcdtest.NoFsync())
	return storetest.Harness{
		Store:   c.Store(t),
		MinTTL:  etcdtest.MinTTL,
		Compact: c.Compact,
		FillUp:  func() { c.SetNoSpace(true) },
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness) }

// TestLikeMemstore is what the simulation rests on.
func TestLikeMemstore(t *testing.T) {
	for s := range *runs {
		t.Run(fmt.Sprint(*seed+s), func(t *testing.T) {
			model := memstore.New()
			storetest.Compare(t, *seed+s, 400, harness(t), storetest.Harness{Store: model, Compact: model.Compact})
		})
	}
}
