package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/controllerd/controllerd/store/memstore"
	"github.com/controllerd/controllerd/store/storetest"
)

func harness() storetest.Harness {
	st := memstore.New()
	return storetest.Harness{
		Store:   st,
		MinTTL:  memstore.DefaultMinTTL,
		Compact: st.Compact,
		FillUp:  func() { st.Do(func(m *memstore.Model, _ time.Duration) { m.NoSpace = true }) },
	}
}

// In a bubble the leases cost no time, and a wait that is none of a channel or
// timer shows as a deadlock.
func TestConformance(t *testing.T) {
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, harness()) })
		})
	}
}
